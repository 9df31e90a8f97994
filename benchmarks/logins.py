"""Clients that do nothing but come in, in processes of their own.

tls     handshake of TLS 1.3 without resumption, then ApiVersions
scram   SASL SCRAM-SHA-512 of alice; what is given is her salted password
oauth   SASL OAUTHBEARER, each login with another of the tokens that are given
"""

import hashlib
import hmac
import secrets
import ssl
from base64 import b64encode
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from barnabas.protocol.messages import api_versions, sasl_authenticate, sasl_handshake
from benchmarks import raw
from benchmarks.child import tell, told


def tls(port: int, authority: str) -> Callable[[], None]:
    context = ssl.create_default_context(cafile=authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    secured = partial(context.wrap_socket, server_hostname="localhost")
    request = raw.frame(api_versions.API, 0, {})

    def come_in() -> None:
        with raw.Client(port, secured) as link:
            link.exchange(request)

    return come_in


def connected(port: int, mechanism: str) -> raw.Client:
    """Connect, and choose a mechanism."""
    client = raw.Client(port)
    if error := client.call(sasl_handshake.API, 1, {"mechanism": mechanism}).error_code:
        raise RuntimeError(f"SaslHandshake: {error}")
    return client


def authenticate(client: raw.Client, message: bytes) -> bytes | None:
    """Send a message of the mechanism; return the broker's, or None if the login is refused."""
    answer = client.call(sasl_authenticate.API, 1, {"auth_bytes": message})
    return None if answer.error_code else bytes(answer.auth_bytes)


def accepted(client: raw.Client, message: bytes) -> bytes:
    """Send a message of a login that is accepted; return the broker's."""
    answer = authenticate(client, message)
    if answer is None:
        raise RuntimeError("a login was refused")
    return answer


def scram(port: int, salted: str) -> Callable[[], None]:
    client_key = hmac.digest(bytes.fromhex(salted), b"Client Key", "sha512")
    stored_key = hashlib.sha512(client_key).digest()

    def come_in() -> None:
        bare = b"n=alice,r=" + secrets.token_hex(12).encode()
        with connected(port, "SCRAM-SHA-512") as link:
            first = accepted(link, b"n,," + bare)
            without_proof = b"c=biws," + first.partition(b",")[0]
            signed = hmac.digest(stored_key, b",".join((bare, first, without_proof)), "sha512")
            proof = bytes(a ^ b for a, b in zip(client_key, signed, strict=True))
            accepted(link, without_proof + b",p=" + b64encode(proof))

    return come_in


def oauth(port: int, given: Sequence[str]) -> Callable[[], None]:
    tokens = iter(given)

    def come_in() -> None:
        with connected(port, "OAUTHBEARER") as link:
            accepted(link, b"n,,\1auth=Bearer " + next(tokens).encode() + b"\1\1")

    return come_in


def come_in(kind: str, port: int, given: Any, count: int, threads: int) -> None:
    """Come in so many times, over so many connections at a time, when it is told."""
    once = {"tls": tls, "scram": scram, "oauth": oauth}[kind](port, given)
    tell("ready")
    told()
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda _: once(), range(count)):
            pass
