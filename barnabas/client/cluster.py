"""The metadata and connections of a client: brokers, topics, leaders and coordinators."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from barnabas.client.connection import BrokerUnreachable, Connect, Connection, Meant
from barnabas.protocol.backoff import Backoff
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import find_coordinator, metadata
from barnabas.protocol.schema import Api

T = TypeVar("T")
_SCHEME: Final = re.compile(r"[A-Za-z0-9_.-]+://")
_HOST: Final = re.compile(r"[^\s/<>{}$]+")

GROUP = 0
TRANSACTION = 1

CONNECT_TIMEOUT = 10.0
UNKNOWN_TOPIC_PATIENCE = 2.0
"""Seconds for which an unknown topic is requested again: a topic that was just created will soon be
known, one with a typing error never."""

GENERAL = -1
"""The purpose of a connection for all requests but those of the other purposes."""
FETCH = 2
"""The purpose of a connection for Fetch requests that wait for records."""

_MANY_COORDINATORS = 4
"""The first version of FindCoordinator with several keys in a request."""
_KEYS_PER_REQUEST = 1000
DESCRIBED_PER_REQUEST: Final = 500
"""The most groups or transactional ids in a request for what is known of them: each may have
thousands of partitions."""

_ConnectionKey = tuple[str, int, int]
"""Host, port and purpose: GENERAL, GROUP, TRANSACTION or FETCH.

A JoinGroup may wait for minutes and a Fetch for its `max_wait`, and both delay the responses behind
them: coordinators and waiting fetches have separate connections.
"""

_STALE_LEADER = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
}
_STALE_COORDINATOR = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


@dataclass(frozen=True, slots=True)
class Node:
    """A broker's id and address."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic in a Metadata response; `leaders` is by partition, -1 if there is no leader."""

    name: str
    topic_id: bytes
    is_internal: bool
    leaders: dict[int, int]
    description: metadata.MetadataResponseTopic


def check(code: int, message: str | None = None) -> None:
    """Raise KafkaError unless `code` is NONE."""
    if code:
        raise KafkaError(ErrorCode.of(code), message)


async def gather_all(attempts: Iterable[Awaitable[T]]) -> list[T]:
    """Return all results, in order; raises the first error when all attempts have ended."""
    results = await asyncio.gather(*attempts, return_exceptions=True)
    for each in results:
        if isinstance(each, BaseException):
            raise each
    return [each for each in results if not isinstance(each, BaseException)]


def parse_address(text: str) -> tuple[str, int]:
    """Parse `host:port`, `[v6]:port` or a host alone (port 9092); ValueError otherwise.

    As in Java, a protocol before it, as in `PLAINTEXT://host:port`, is ignored.
    """
    address = _SCHEME.sub("", text)
    host, colon, port = address.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        host, port = address, "9092"
    if not _HOST.fullmatch(host) or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not a valid address: give HOST:PORT")
    return host.strip("[]"), int(port)


class Cluster:
    """The connections, leaders and coordinators of one cluster.

    `bootstrap` is Kafka's `bootstrap.servers`; `timeout` bounds each call, retries included, in s,
    and `request_timeout` each of its requests: None for no other bound. `connect` opens sockets;
    `connect_with` of barnabas/client/security.py makes one for TLS and SASL.

    If another cluster has taken the addresses of this one, every call raises KafkaError
    REBOOTSTRAP_REQUIRED, unless `check_cluster` is false: then the client continues with the
    other cluster, as Kafka's clients do.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "barnabas",
        timeout: float = 30.0,
        request_timeout: float | None = None,
        connect: Connect | None = None,
        check_cluster: bool = True,
    ) -> None:
        self._connect_protocol = connect
        self._check_cluster = check_cluster
        addresses = list(filter(None, map(str.strip, bootstrap.split(",")))) or [""]
        self._bootstrap = [parse_address(each) for each in addresses]
        self._client_id = client_id
        self.timeout = timeout
        self.request_timeout = timeout if request_timeout is None else min(timeout, request_timeout)
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None
        self.is_replaced = False
        """Whether another cluster was found at the addresses: a new client is needed."""
        self._connections: dict[_ConnectionKey, Connection] = {}
        self._opening: dict[_ConnectionKey, asyncio.Lock] = {}
        self._coordinators: dict[tuple[int, str], int] = {}

    async def __aenter__(self) -> Self:
        await self.refresh(())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        # Another task may connect meanwhile.
        while self._connections:
            _, connection = self._connections.popitem()
            await connection.close()

    @property
    def requests(self) -> int:
        """The number of requests that the open connections have sent."""
        return sum(connection.requests for connection in self._connections.values())

    async def any_connection(self) -> Connection:
        """Return a connection to any broker that can be reached."""
        connected = [
            (host, port) for host, port, purpose in self._connections if purpose == GENERAL
        ]
        known = [(node.host, node.port) for node in self.nodes.values()]
        error: BrokerUnreachable | None = None
        for host, port in dict.fromkeys([*connected, *known, *self._bootstrap]):
            try:
                return await self._connect((host, port, GENERAL))
            except BrokerUnreachable as unreachable:
                error = unreachable
        assert error is not None
        raise error

    async def connection_to(self, node_id: int, *, purpose: int = GENERAL) -> Connection:
        """Return the connection to a broker for a purpose: GENERAL, GROUP, TRANSACTION or FETCH.

        Raises KafkaError BROKER_NOT_AVAILABLE if the broker is unknown.
        """
        node = self.nodes.get(node_id)
        if node is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not known")
        return await self._connect((node.host, node.port, purpose))

    async def ask(self, api: Api, request: object, *, node: int | None = None) -> Any:
        """Send a request to a broker, or to any broker if `node` is None; no retry."""
        connection = await (self.any_connection() if node is None else self.connection_to(node))
        return await connection.request(api, request, timeout=self.request_timeout)

    async def ask_controller(self, api: Api, request: object) -> Any:
        """Send a request to the controller, e.g. CreateTopics.

        With KRaft, Metadata names any broker, which forwards the request.
        """
        if self.controller_id not in self.nodes:
            await self.refresh(())
            if self.controller_id not in self.nodes:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")
        return await self.ask(api, request, node=self.controller_id)

    async def ask_coordinator(self, api: Api, request: object, key: str, kind: int = GROUP) -> Any:
        """Send a request to the coordinator of a group or transactional id."""
        connection = await self.coordinator_connection(key, kind)
        return await connection.request(api, request, timeout=self.request_timeout)

    async def ask_coordinators(
        self,
        keys: Iterable[str],
        ask: Callable[[Connection, list[str]], Awaitable[Mapping[str, T]]],
        kind: int = GROUP,
    ) -> dict[str, T]:
        """Ask the coordinators of groups or transactional ids, each for many of them at once.

        `ask` sends the request for some keys of one coordinator and returns what it has found by
        key. Retriable errors are retried until the cluster's timeout.
        """
        wanted = list(dict.fromkeys(keys))

        async def one(node: int, some: list[str]) -> Mapping[str, T]:
            return await ask(await self.connection_to(node, purpose=kind), some)

        async def attempt() -> dict[str, T]:
            by_node: dict[int, list[str]] = defaultdict(list)
            for key, node in (await self.coordinators(wanted, kind)).items():
                by_node[node].append(key)
            answers = await gather_all(
                one(node, some[first : first + DESCRIBED_PER_REQUEST])
                for node, some in by_node.items()
                for first in range(0, len(some), DESCRIBED_PER_REQUEST)
            )
            return {key: found for answer in answers for key, found in answer.items()}

        return await self.retrying(attempt)

    async def coordinator_connection(self, key: str, kind: int = GROUP) -> Connection:
        """Return the connection to the coordinator of a group or transactional id."""
        return await self.connection_to(await self.coordinator(key, kind), purpose=kind)

    async def refresh(
        self, topics: Iterable[str] | None = None, *, create: bool = False
    ) -> metadata.MetadataResponse:
        """Request Metadata of `topics` (None: all) and keep the response."""
        rows = None
        if topics is not None:
            rows = [metadata.MetadataRequestTopic(name=name) for name in topics]
        response: metadata.MetadataResponse = await self.ask(
            metadata.API,
            metadata.MetadataRequest(topics=rows, allow_auto_topic_creation=create),
        )
        check(response.error_code)
        self._require_same_cluster(response.cluster_id)
        self._remember_brokers(response)
        if topics is None:
            self.topics.clear()
        for topic in response.topics:
            self._remember(topic)
        return response

    def _remember_brokers(self, response: metadata.MetadataResponse) -> None:
        self.nodes = {b.node_id: Node(b.node_id, b.host, b.port) for b in response.brokers}
        self.controller_id = response.controller_id
        self.cluster_id = response.cluster_id

    def _require_same_cluster(self, cluster_id: str | None) -> None:
        """Raise REBOOTSTRAP_REQUIRED if a broker is of another cluster than those before."""
        known = self.cluster_id
        if self._check_cluster and None not in (known, cluster_id) and known != cluster_id:
            self.is_replaced = True
            raise KafkaError(
                ErrorCode.REBOOTSTRAP_REQUIRED,
                f"cluster {cluster_id} has taken the addresses of cluster {known}, with which this "
                "client began. Start the client again, or set metadata.cluster.check.enable=false",
            )

    def _remember(self, topic: metadata.MetadataResponseTopic) -> None:
        assert topic.name is not None
        if topic.error_code:
            self.topics.pop(topic.name, None)
            return
        leaders = {p.partition_index: p.leader_id for p in topic.partitions}
        self.topics[topic.name] = TopicInfo(
            topic.name, topic.topic_id, topic.is_internal, leaders, topic
        )

    async def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """Return the description of a topic; raises the broker's KafkaError otherwise."""
        if name not in self.topics:
            response = await self.refresh([name], create=create)
            for row in response.topics:
                check(row.error_code, f"topic {name}")
        return self.topics[name]

    async def leader(self, topic: str, partition: int) -> int:
        """Return the leader of a partition; raises LEADER_NOT_AVAILABLE without one."""
        leaders = (await self.topic(topic)).leaders
        if partition not in leaders:
            self.topics.pop(topic, None)
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} has no partition {partition}"
            )
        if leaders[partition] not in self.nodes:
            self.topics.pop(topic, None)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return leaders[partition]

    async def coordinator(self, key: str, kind: int = GROUP) -> int:
        """Return the coordinator of a group or transactional id."""
        return (await self.coordinators([key], kind))[key]

    async def coordinators(self, keys: Iterable[str], kind: int = GROUP) -> dict[str, int]:
        """Return the coordinator of each group or transactional id."""
        known = {key: self._coordinators.get((kind, key), -1) for key in keys}
        unknown = [key for key, node in known.items() if node not in self.nodes]
        if unknown:
            connection = await self.any_connection()
            many = connection.version_for(find_coordinator.API) >= _MANY_COORDINATORS
            step = _KEYS_PER_REQUEST if many else 1
            for first in range(0, len(unknown), step):
                known |= await self._find_coordinators(
                    connection, unknown[first : first + step], kind, many=many
                )
        return known

    async def _find_coordinators(
        self, connection: Connection, keys: list[str], kind: int, *, many: bool
    ) -> dict[str, int]:
        request = find_coordinator.FindCoordinatorRequest(
            key="" if many else keys[0], key_type=kind, coordinator_keys=keys if many else []
        )
        response = await connection.request(
            find_coordinator.API, request, timeout=self.request_timeout
        )
        rows = {row.key: row for row in response.coordinators} if many else {keys[0]: response}
        for key in keys:
            if key not in rows:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker names no coordinator of {key}"
                )
            found = rows[key]
            check(found.error_code, found.error_message)
            self.nodes[found.node_id] = Node(found.node_id, found.host, found.port)
            self._coordinators[kind, key] = found.node_id
        return {key: int(rows[key].node_id) for key in keys}

    def remember_coordinator(self, key: str, kind: int, node: int) -> None:
        """Note that a known broker is the coordinator of a group or transactional id."""
        self._coordinators[kind, key] = node

    async def retrying(
        self, attempt: Callable[[], Awaitable[T]], *, timeout: float | None = None
    ) -> T:
        """Run `attempt` until it succeeds or its error is not retriable, for at most `timeout` s.

        A lost connection is retriable too; leaders and coordinators are then looked up again.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        deadline = began + (self.timeout if timeout is None else timeout)
        backoff = Backoff()
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    deadline = min(deadline, began + UNKNOWN_TOPIC_PATIENCE)
                if not error.code.retriable or loop.time() + backoff.wait > deadline:
                    raise
                self._forget(error.code)
            except (BrokerUnreachable, TimeoutError):
                if loop.time() + backoff.wait > deadline:
                    raise
                self._forget(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                self._forget(ErrorCode.NOT_COORDINATOR)
            await asyncio.sleep(backoff.failed())

    def forget_coordinator(self, key: str, kind: int = GROUP) -> None:
        """Look up the coordinator of a group or transactional id again the next time."""
        self._coordinators.pop((kind, key), None)

    def _forget(self, code: ErrorCode) -> None:
        if code in _STALE_LEADER:
            self.topics.clear()
        if code in _STALE_COORDINATOR:
            self._coordinators.clear()
        if code is ErrorCode.NOT_CONTROLLER:
            self.controller_id = -1

    async def _connect(self, key: _ConnectionKey) -> Connection:
        connection = self._connections.get(key)
        if connection is not None and connection.is_open:
            return connection
        # Several tasks may need the connection: open it once.
        async with self._opening.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is None or not connection.is_open:
                self._connections.pop(key, None)
                connection = await self._open(key[0], key[1])
                self._connections[key] = connection
            return connection

    async def _open(self, host: str, port: int) -> Connection:
        """Connect to an address. If another broker of the cluster has taken it, the brokers are
        known again after it; raises BrokerUnreachable then, and REBOOTSTRAP_REQUIRED if it is of
        another cluster."""
        node = next((n for n in self.nodes.values() if (n.host, n.port) == (host, port)), None)
        meant = None
        if self._check_cluster and self.cluster_id is not None and node is not None:
            meant = Meant(self.cluster_id, node.id)
        try:
            return await self._open_to(host, port, meant)
        except KafkaError as error:
            if meant is None or error.code is not ErrorCode.REBOOTSTRAP_REQUIRED:
                raise
        other = await self._open_to(host, port, None)
        try:
            response = await other.request(
                metadata.API, metadata.MetadataRequest(topics=[]), timeout=self.request_timeout
            )
        finally:
            await other.close()
        self._require_same_cluster(response.cluster_id)
        self._remember_brokers(response)
        raise BrokerUnreachable(f"{host}:{port} is not broker {meant.node_id} any more")

    async def _open_to(self, host: str, port: int, meant: Meant | None) -> Connection:
        return await Connection.open(
            host,
            port,
            client_id=self._client_id,
            timeout=min(self.timeout, CONNECT_TIMEOUT),
            connect=self._connect_protocol,
            meant=meant,
        )
