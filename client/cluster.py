"""What a client knows of a cluster: its brokers, topics and coordinators, and how to reach them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from barnabas.client.connection import BrokerUnreachable, Connection
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import find_coordinator, metadata
from barnabas.protocol.schema import Api

T = TypeVar("T")

GROUP = 0
TRANSACTION = 1

FIRST_BACKOFF = 0.05
MAX_BACKOFF = 1.0
CONNECT_TIMEOUT = 10.0
UNKNOWN_TOPIC_PATIENCE = 2.0
"""How long a topic is asked for that a broker does not know: one that was just created will be
known in a moment, one with a typing error never."""

ANYTHING = -1
"""What a connection is for that serves no coordinator's requests."""

_Line = tuple[str, int, int]
"""Host, port, and what it is for: ANYTHING, GROUP or TRANSACTION. To a group's coordinator a
JoinGroup may wait for minutes, and the answers of a connection stay in order."""

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
    """A topic as Metadata told it; `leaders` by partition, -1 where there is none."""

    name: str
    topic_id: bytes
    is_internal: bool
    leaders: dict[int, int]
    description: metadata.MetadataResponseTopic


def check(code: int, message: str | None = None) -> None:
    """Raises KafkaError unless `code` is NONE."""
    if code:
        raise KafkaError(ErrorCode.of(code), message)


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port` or a bare host (port 9092); ValueError otherwise."""
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        host, port = text, "9092"
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is no address: give HOST:PORT")
    return host.strip("[]"), int(port)


class Cluster:
    """Connections, leaders and coordinators of one cluster, learnt from `bootstrap` addresses.

    `bootstrap` is Kafka's `bootstrap.servers`; `timeout` bounds each call, retries included, in s.
    """

    def __init__(
        self, bootstrap: str, *, client_id: str = "barnabas", timeout: float = 30.0
    ) -> None:
        self._bootstrap = [parse_address(part.strip()) for part in bootstrap.split(",")]
        self._client_id = client_id
        self.timeout = timeout
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None
        self._connections: dict[_Line, Connection] = {}
        self._opening: dict[_Line, asyncio.Lock] = {}
        self._coordinators: dict[tuple[int, str], int] = {}

    async def __aenter__(self) -> "Cluster":
        await self.refresh(())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes every connection."""
        for connection in self._connections.values():
            await connection.close()
        self._connections.clear()

    @property
    def requests(self) -> int:
        """How many requests the connections that stand have sent."""
        return sum(connection.requests for connection in self._connections.values())

    async def any_connection(self) -> Connection:
        """A connection to some broker that answers."""
        connected = [
            (host, port) for host, port, purpose in self._connections if purpose == ANYTHING
        ]
        known = [(node.host, node.port) for node in self.nodes.values()]
        error: BrokerUnreachable | None = None
        for host, port in dict.fromkeys([*connected, *known, *self._bootstrap]):
            try:
                return await self._connect((host, port, ANYTHING))
            except BrokerUnreachable as unreachable:
                error = unreachable
        assert error is not None
        raise error

    async def connection_to(self, node_id: int, *, purpose: int = ANYTHING) -> Connection:
        """A connection to one broker, or the one to it as coordinator of a kind.

        Raises KafkaError BROKER_NOT_AVAILABLE if the broker is unknown.
        """
        node = self.nodes.get(node_id)
        if node is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not known")
        return await self._connect((node.host, node.port, purpose))

    async def ask(self, api: Api, request: object, *, node: int | None = None) -> Any:
        """One request to a broker, any if `node` is None; no retry."""
        connection = await (self.any_connection() if node is None else self.connection_to(node))
        return await connection.request(api, request, timeout=self.timeout)

    async def ask_controller(self, api: Api, request: object) -> Any:
        """One request to the controller, as creating topics needs; any broker forwards in KRaft."""
        if self.controller_id not in self.nodes:
            await self.refresh(())
            if self.controller_id not in self.nodes:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")
        return await self.ask(api, request, node=self.controller_id)

    async def ask_coordinator(self, api: Api, request: object, key: str, kind: int = GROUP) -> Any:
        """One request to the coordinator of a group or transactional id."""
        connection = await self.coordinator_connection(key, kind)
        return await connection.request(api, request, timeout=self.timeout)

    async def coordinator_connection(self, key: str, kind: int = GROUP) -> Connection:
        """The connection to the coordinator of a group or transactional id."""
        return await self.connection_to(await self.coordinator(key, kind), purpose=kind)

    async def refresh(
        self, topics: Iterable[str] | None = None, *, create: bool = False
    ) -> metadata.MetadataResponse:
        """Asks for Metadata of `topics` (None: all) and remembers what it says."""
        rows = None
        if topics is not None:
            rows = [metadata.MetadataRequestTopic(name=name) for name in topics]
        response: metadata.MetadataResponse = await self.ask(
            metadata.API,
            metadata.MetadataRequest(topics=rows, allow_auto_topic_creation=create),
        )
        check(response.error_code)
        self.nodes = {b.node_id: Node(b.node_id, b.host, b.port) for b in response.brokers}
        self.controller_id = response.controller_id
        self.cluster_id = response.cluster_id
        if topics is None:
            self.topics.clear()
        for topic in response.topics:
            self._remember(topic)
        return response

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
        """A topic's description; KafkaError as the broker gave it where it has none."""
        if name not in self.topics:
            response = await self.refresh([name], create=create)
            for row in response.topics:
                check(row.error_code, f"topic {name}")
        return self.topics[name]

    async def leader(self, topic: str, partition: int) -> int:
        """The broker that leads a partition; LEADER_NOT_AVAILABLE while there is none."""
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
        """The broker that coordinates a group or a transactional id."""
        node = self._coordinators.get((kind, key))
        if node is not None and node in self.nodes:
            return node
        connection = await self.any_connection()
        api = find_coordinator.API
        request = find_coordinator.FindCoordinatorRequest(key=key, key_type=kind)
        if connection.version_for(api) >= 4:
            request = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        response = await connection.request(api, request, timeout=self.timeout)
        found = response.coordinators[0] if response.coordinators else response
        check(found.error_code, found.error_message)
        self.nodes[found.node_id] = Node(found.node_id, found.host, found.port)
        self._coordinators[kind, key] = found.node_id
        return int(found.node_id)

    async def retrying(
        self, attempt: Callable[[], Awaitable[T]], *, timeout: float | None = None
    ) -> T:
        """Runs `attempt` again while its error is one that passes, for at most `timeout` s.

        A lost connection passes too; what was known of leaders and coordinators is asked again.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        deadline = began + (self.timeout if timeout is None else timeout)
        backoff = FIRST_BACKOFF
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    deadline = min(deadline, began + UNKNOWN_TOPIC_PATIENCE)
                if not error.code.retriable or loop.time() + backoff > deadline:
                    raise
                self._forget(error.code)
            except (BrokerUnreachable, TimeoutError):
                if loop.time() + backoff > deadline:
                    raise
                self._forget(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                self._forget(ErrorCode.NOT_COORDINATOR)
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, MAX_BACKOFF)

    def forget_coordinator(self, key: str, kind: int = GROUP) -> None:
        """Asks again the next time who coordinates a group or transactional id."""
        self._coordinators.pop((kind, key), None)

    def _forget(self, code: ErrorCode) -> None:
        if code in _STALE_LEADER:
            self.topics.clear()
        if code in _STALE_COORDINATOR:
            self._coordinators.clear()
        if code is ErrorCode.NOT_CONTROLLER:
            self.controller_id = -1

    async def _connect(self, line: _Line) -> Connection:
        connection = self._connections.get(line)
        if connection is not None and connection.is_open:
            return connection
        # One opening at a time, however many tasks ask for it.
        async with self._opening.setdefault(line, asyncio.Lock()):
            connection = self._connections.get(line)
            if connection is None or not connection.is_open:
                self._connections.pop(line, None)
                connection = await Connection.open(
                    line[0],
                    line[1],
                    client_id=self._client_id,
                    timeout=min(self.timeout, CONNECT_TIMEOUT),
                )
                self._connections[line] = connection
            return connection
