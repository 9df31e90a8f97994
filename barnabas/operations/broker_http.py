"""The HTTP endpoints of brokers: their addresses, and requests to them."""

import asyncio
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial
from typing import Final

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.protocol.config_resources import ConfigResourceType

_SECONDS: Final = 5.0
_MOST_BYTES: Final = 64 * 1024 * 1024
"""The most bytes that are read of a response: the metrics of 10,000 partitions have 20 MB."""
_ANY: Final = ("", "0.0.0.0", "[::]")
"""The host of an endpoint on every address."""


class HttpAccess:
    """The way to brokers' endpoints: a token, and certificates."""

    def __init__(self, token: str | None = None, ca_file: str | None = None) -> None:
        """`token` is that of metrics.listener.token.file, `ca_file` a PEM file for https.

        Raises OSError if the file cannot be used.
        """
        self.token = token
        self.ca_file = ca_file
        context = ssl.create_default_context(cafile=ca_file)
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), urllib.request.ProxyHandler({})
        )

    def ask(self, address: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body of the response to a GET, or to a POST of JSON; OSError without
        one. It blocks."""
        request = urllib.request.Request(address, body)
        if body is not None:
            request.add_header("Content-Type", "application/json")
        if self.token is not None:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                return 200, answer.read(_MOST_BYTES)
        except urllib.error.HTTPError as error:
            return error.code, error.read(_MOST_BYTES)
        except http.client.HTTPException as error:
            # Another protocol at this port, or a broker that was killed while it answered.
            raise OSError(f"no whole HTTP response: {type(error).__name__}") from error


def http_address(configs: Mapping[str, str | None], broker_host: str) -> str | None:
    """Return the address of a broker's HTTP endpoint, as seen from here; None without one."""
    host, _, port = (configs.get("metrics.listener") or "").rpartition(":")
    if not port:
        return None
    scheme = "https" if configs.get("metrics.listener.certificate.file") else "http"
    return f"{scheme}://{broker_host if host in _ANY else host}:{port}"


class Endpoints:
    """The HTTP endpoints of the brokers of a cluster. A client may know their addresses that has
    the right to describe the configurations of the brokers."""

    def __init__(self, cluster: Cluster, access: HttpAccess) -> None:
        self._cluster = cluster
        self._access = access
        self._addresses: dict[int, str | None] = {}
        """None for a broker without an endpoint."""

    @property
    def known(self) -> set[int]:
        """The brokers whose address was found out, those that have ended since among them."""
        return {*self._addresses}

    async def get(self, broker: int, path: str) -> bytes:
        """Return the body of the response of a broker. Raises KafkaError and OSError."""
        if broker not in self._addresses:
            self._addresses[broker] = await self._address(broker)
        address = self._addresses[broker]
        if address is None:
            raise OSError("no HTTP endpoint (metrics.listener)")
        loop = asyncio.get_running_loop()
        ask = partial(self._access.ask, f"{address}{path}")
        status, body = await loop.run_in_executor(None, ask)
        if status != 200:
            raise OSError(f"HTTP {status}: {body[:100].decode(errors='replace').strip()}")
        return body

    async def _address(self, broker: int) -> str | None:
        rows = await Admin(self._cluster).describe_configs(ConfigResourceType.BROKER, str(broker))
        return http_address({row.name: row.value for row in rows}, self._cluster.nodes[broker].host)
