"""The servers that answer where a command looked for a broker without TLS."""

import asyncio
import ssl
from contextlib import suppress
from typing import Final

from barnabas.client.cluster import parse_address

_PATIENCE: Final = 2.0
"""Seconds for an answer."""


class WrongPeer(Exception):
    """Another server than a broker, or a listener with TLS, answers at an address."""


async def refuse_wrong_peers(bootstrap: str) -> None:
    """Raise WrongPeer if one of the addresses, `host:port,...`, answers over TLS or HTTP."""
    for address in map(str.strip, bootstrap.split(",")):
        host, port = parse_address(address)
        if await _speaks_tls(host, port):
            raise WrongPeer(
                f"{address} speaks TLS: set security.protocol=SSL or SASL_SSL in --command-config"
            )
        if await _speaks_http(host, port):
            raise WrongPeer(f"an HTTP server answers at {address}, and no broker")


async def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.create_default_context()
    # Nothing is sent, and any certificate will do.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(_PATIENCE):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLError as error:
        # A server that wants a certificate, or another version of TLS, says so in an alert.
        return "ALERT" in (error.reason or "")
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return True


async def _speaks_http(host: str, port: int) -> bool:
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                return await reader.read(5) == b"HTTP/"
            finally:
                writer.transport.abort()
    return False
