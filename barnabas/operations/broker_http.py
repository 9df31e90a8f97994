"""The HTTP endpoints of brokers: their addresses, requests, and the events that they serve."""

import asyncio
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.errors import KafkaError

_SECONDS: Final = 5.0
_MOST_BYTES: Final = 64 * 1024 * 1024
"""The most bytes that are read of an answer: a page of metrics of 10,000 partitions has 20 MB."""
_ANY: Final = ("", "0.0.0.0", "[::]")
"""The host of an endpoint on every address."""


class HttpAccess:
    """The way to brokers' endpoints: a token, and certificates."""

    def __init__(self, token: str | None = None, ca_file: str | None = None) -> None:
        """`token` is that of metrics.listener.token.file, `ca_file` a PEM file for https.

        Raises OSError if the file cannot be used.
        """
        self._token = token
        context = ssl.create_default_context(cafile=ca_file)
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), urllib.request.ProxyHandler({})
        )

    def get(self, address: str) -> tuple[int, bytes]:
        """Return status and body of an answer; OSError without one. It blocks."""
        request = urllib.request.Request(address)
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                return 200, answer.read(_MOST_BYTES)
        except urllib.error.HTTPError as error:
            return error.code, error.read(_MOST_BYTES)


def http_address(configs: Mapping[str, str | None], broker_host: str) -> str | None:
    """Return the address of a broker's HTTP endpoint, as seen from here; None without one."""
    host, _, port = (configs.get("metrics.listener") or "").rpartition(":")
    if not port:
        return None
    scheme = "https" if configs.get("metrics.listener.certificate.file") else "http"
    return f"{scheme}://{broker_host if host in _ANY else host}:{port}"


class ClusterEvent(NamedTuple):
    """An event that a broker serves at /events."""

    time_ms: int
    broker: int
    sequence: int
    kind: str
    subject: dict[str, str | int]
    text: str


class _Position(NamedTuple):
    """The run of a broker, and the last event of it that was read."""

    run: str
    sequence: int


class _Answer(NamedTuple):
    """The answer of a broker."""

    run: str
    dropped: int
    events: list[ClusterEvent]


class ClusterEvents:
    """The events of all brokers of a cluster, read again and again."""

    def __init__(self, cluster: Cluster, access: HttpAccess) -> None:
        self._cluster = cluster
        self._access = access
        self._addresses: dict[int, str | None] = {}
        """None for a broker without an endpoint."""
        self._positions: dict[int, _Position] = {}
        self.problems: dict[int, str] = {}
        """Why the last reading lacks events, by broker."""

    async def read(self) -> list[ClusterEvent]:
        """Return the events since the last reading in the order of time.

        Raises KafkaError and BrokerUnreachable if no broker tells which brokers there are.
        """
        self.problems = {}
        await self._cluster.refresh(())
        brokers = {*self._cluster.nodes, *self._addresses}
        found = await asyncio.gather(*map(self._read, sorted(brokers)))
        return sorted((event for each in found for event in each), key=itemgetter(0, 1, 2))

    async def _read(self, broker: int) -> list[ClusterEvent]:
        try:
            if broker not in self._addresses:
                self._addresses[broker] = await self._address(broker)
            address = self._addresses[broker]
            if address is None:
                self.problems[broker] = "no HTTP endpoint (metrics.listener)"
                return []
            return await self._later(broker, address)
        except (KafkaError, BrokerUnreachable, OSError, TimeoutError) as error:
            self.problems[broker] = str(error) or type(error).__name__
            return []

    async def _address(self, broker: int) -> str | None:
        rows = await Admin(self._cluster).describe_configs(ConfigResourceType.BROKER, str(broker))
        return http_address({row.name: row.value for row in rows}, self._cluster.nodes[broker].host)

    async def _later(self, broker: int, address: str) -> list[ClusterEvent]:
        known = self._positions.get(broker)
        after = 0 if known is None else known.sequence
        answer = await self._ask(broker, f"{address}/events?after={after}")
        if known is not None and answer.run != known.run:
            known, answer = None, await self._ask(broker, f"{address}/events?after=0")
        if known is not None and answer.dropped:
            self.problems[broker] = f"{answer.dropped} events came and went since the last reading"
        last = 0 if known is None else known.sequence
        if answer.events:
            last = answer.events[-1].sequence
        self._positions[broker] = _Position(answer.run, last)
        return answer.events

    async def _ask(self, broker: int, address: str) -> _Answer:
        loop = asyncio.get_running_loop()
        status, body = await loop.run_in_executor(None, partial(self._access.get, address))
        if status != 200:
            raise OSError(f"HTTP {status}: {body[:100].decode(errors='replace').strip()}")
        try:
            return _answer(broker, json.loads(body))
        except (LookupError, TypeError, ValueError) as error:
            raise OSError(f"{address} has another format") from error


def _answer(broker: int, answer: dict[str, Any]) -> _Answer:
    events = [
        ClusterEvent(
            int(each["time_ms"]),
            broker,
            int(each["sequence"]),
            str(each["kind"]),
            dict(each["subject"]),
            str(each["text"]),
        )
        for each in answer["events"]
    ]
    return _Answer(str(answer["run"]), int(answer["dropped"]), events)
