"""Two brokers on virtual time, one of them without fast paths: the same requests must have the same
answers and the same effects."""

import asyncio
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from unittest.mock import patch

from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.repeats import Repeats
from barnabas.client.connection import Connection
from barnabas.coordinator import postponed
from barnabas.protocol.codec import encode
from barnabas.protocol.messages import (
    create_topics,
    delete_topics,
    incremental_alter_configs,
    leader_and_isr,
    produce,
)
from barnabas.protocol.messages.produce import (
    API,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.storage.files.mem_files import MemFiles
from barnabas.storage.log.log_parts import LogAppendInfo
from barnabas.storage.log.validator import Origin
from tests.simulation.one_broker import broker_on
from tests.support.data_path import creation
from tests.support.virtual_loop import VirtualLoop

T = TypeVar("T")
QUESTIONS = "kafka_server_addpartitionstotxnmanager_verificationtimems"
"""The times of questions to the coordinator; a partition that was told does not ask."""
OF_THE_PROCESS = ("process_", "python_")
PATIENCE_S = 45.0
"""Virtual seconds for the answers to a write; a request may wait until its timeout."""
_SET = 0
_TOPIC = 2


def frame(
    records: bytes | None,
    *,
    version: int = 9,
    number: int = 1,
    topic: str = "t",
    topic_id: bytes = bytes(16),
    index: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
    client_id: bytes | None = b"client",
    timeout_ms: int = 5000,
) -> bytes:
    """Return a Produce request without its length."""
    data = PartitionProduceData(index=index, records=records)
    named = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])
    request = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=[named]
    )
    length = -1 if client_id is None else len(client_id)
    header = struct.pack(">hhih", API.key, version, number, length) + (client_id or b"")
    tags = b"\0" if API.is_flexible(version) else b""
    return header + tags + encode(request, version)


class Wire(asyncio.Protocol):
    """A client's connection that sends bytes as they are, and collects answers."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.answers: list[bytes] = []
        self.closed = False
        self._received = bytearray()
        self._changed = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4])
            if len(self._received) < end:
                break
            self.answers.append(bytes(self._received[4:end]))
            del self._received[:end]
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.closed = True
        self._changed.set()

    async def exchange(self, data: bytes, answers: int) -> list[bytes]:
        """Send bytes, and return the answers: as many as given, fewer from a broker that closes the
        connection or does not answer."""
        self.transport.write(data)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while len(self.answers) < answers and not self.closed:
                    self._changed.clear()
                    await self._changed.wait()
        # Requests without an answer arrive too.
        await asyncio.sleep(0.01)
        taken, self.answers = self.answers, []
        return taken


class Side:
    """One of the two brokers, on a loop of its own."""

    def __init__(self, seed: int, *, fast: bool, **keys: str) -> None:
        self.loop = VirtualLoop(seed)
        self.files = MemFiles()
        self.fast = fast
        options = {"transaction_state_log_num_partitions": "1", **keys}
        self.broker = broker_on(
            self.loop, seed, self.files, fast_paths_enable=str(fast).lower(), **options
        )
        self.wires: dict[int, Wire] = {}
        self.admin: Connection

    def run(self, work: Awaitable[T]) -> T:
        asyncio.set_event_loop(self.loop)
        try:
            return self.loop.run_until_complete(work)
        finally:
            asyncio.set_event_loop(None)

    async def start(self, port: int) -> None:
        await self.broker.start()
        self.admin = await Connection.open("sim", port)

    async def stop(self) -> None:
        await self.admin.close()
        for wire in self.wires.values():
            wire.transport.close()
        await asyncio.sleep(1)
        await self.broker.stop()

    def close(self) -> None:
        """Give the loop up, and what still runs on it if a test has broken off."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        with suppress(Exception):
            self.run(asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 1))
        self.loop.close()

    async def exchange(self, connection: int, data: bytes, answers: int) -> list[bytes]:
        wire = self.wires.get(connection)
        if wire is None or wire.closed:
            _, wire = await self.loop.create_connection(Wire, "sim", max(connection, 9092))
            assert isinstance(wire, Wire)
            self.wires[connection] = wire
        return await wire.exchange(data, answers)

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        return self.broker._replication.replicas.partition(topic, index)

    def state(self) -> dict[str, object]:
        """Return what a client or the next start could see, but for the files."""
        seen: dict[str, object] = {"time": self.loop.time()}
        for partition in self.broker._replication.replicas:
            name = f"{partition.topic}-{partition.index}"
            log, producers = partition.log, partition.log.producers
            seen[name] = (
                partition.leader_epoch,
                log.log_start_offset,
                log.log_end_offset,
                log.high_watermark,
                log.last_stable_offset,
                log.flushed_offset,
                log.epochs.entries,
                producers.map_end_offset,
            )
            seen[f"{name} producers"] = (
                # Not the verifications in progress: only a broker with fast paths tells its
                # partitions whom to expect, and a refused batch leaves the other one asking.
                [entry.with_verification(None, entry.opened_by) for entry in producers],
                dict(producers._ongoing),
                dict(producers.unreplicated),
            )
            seen[f"{name} segments"] = [
                (
                    segment.base_offset,
                    segment.size,
                    segment.next_offset,
                    segment.first_timestamp,
                    segment.max_timestamp,
                    segment.max_timestamp_offset,
                    segment._since_index_entry,
                    dict(segment._hints),
                    [
                        [index.entry_at(number) for number in range(index.entries)]
                        for index in (segment.offset_index, segment.time_index)
                    ],
                )
                for segment in log.segments
            ]
        for family in self.broker.registry.snapshot():
            if not family.name.startswith(OF_THE_PROCESS) and family.name != QUESTIONS:
                seen[family.name] = sorted(family.samples)
        return seen

    def content(self) -> dict[str, bytes | None]:
        """Return all files."""
        return {
            path: None if node is None else bytes(node.data)
            for path, node in self.files._nodes.items()
        }


class Twins:
    """Both brokers. Each method does the same on both, and compares what comes of it."""

    def __init__(self, seed: int = 1, *, port: int = 9092, **keys: str) -> None:
        self.sides = tuple(Side(seed, fast=fast, **keys) for fast in (True, False))
        self.fast = self.sides[0]
        self.sent = 0
        self.hits: Counter[tuple[int, int]] = Counter()
        """The requests that were answered from memory, by API key and version."""
        self.faults: list[Exception] = []
        """The errors for which a request was not remembered: the broker logs them."""
        self.appends = 0
        """The batches of clients that were appended, on both sides together."""
        self.numbers = 0
        self.ids: dict[str, bytes] = {}
        self._port = port

    @property
    def appended(self) -> int:
        """The batches of clients that each side has appended."""
        return self.appends // 2

    @property
    def served(self) -> int:
        """The Produce requests that were answered from memory."""
        return self.hits_of(produce)

    def hits_of(self, *modules: Any, versions: range = range(100)) -> int:
        """Return how many requests of some APIs were answered from memory."""
        keys = [module.API.key for module in modules]
        return sum(n for (key, at), n in self.hits.items() if key in keys and at in versions)

    def both(self, work: Callable[[Side], Awaitable[T]]) -> T:
        """Do something on both sides, and return its result, which must be the same."""
        fast, plain = [side.run(work(side)) for side in self.sides]
        assert fast == plain, f"with the fast path {fast!r}, without {plain!r}"
        return fast

    def each(self, work: Callable[[Side], object]) -> None:
        """Do something on both sides that returns at once."""

        async def done(side: Side) -> None:
            work(side)

        self.both(done)

    def exchange(self, *frames: bytes, on: int = 0, answers: int | None = None) -> list[bytes]:
        """Send frames in one write on a connection; return the answers.

        Connections are numbered; a number above 9092 is the port of another listener.
        """
        data = b"".join(struct.pack(">i", len(each)) + each for each in frames)
        wanted = len(frames) if answers is None else answers
        self.sent += len(frames)
        found = self.both(lambda side: side.exchange(on, data, wanted))
        fast, plain = [side.wires[on].closed for side in self.sides]
        assert fast == plain, "one broker closes the connection"
        return found

    def produce(self, records: bytes | None, *, on: int = 0, **fields: Any) -> bytes:
        """Send one Produce request, and return the bytes of its answer after the number."""
        self.numbers += 1
        (answer,) = self.exchange(frame(records, number=self.numbers, **fields), on=on)
        return answer[4:]

    def ask(self, module: Any, request: Any, version: int | None = None) -> Any:
        """Send a request of an administrator, and return the answer."""
        return self.both(
            lambda side: side.admin.request(module.API, request, version=version, timeout=300)
        )

    def state(self) -> dict[str, object]:
        """Compare the states, and return it."""
        fast, plain = [side.state() for side in self.sides]
        differ = {
            key: (fast.get(key), plain.get(key))
            for key in {*fast, *plain}
            if fast.get(key) != plain.get(key)
        }
        assert not differ, f"with the fast path, and without: {differ}"
        return fast

    def stop(self) -> None:
        """Stop the brokers, and compare their files."""
        assert not self.faults
        self.state()
        self.both(Side.stop)
        fast, plain = [side.content() for side in self.sides]
        differ = [path for path in {*fast, *plain} if fast.get(path) != plain.get(path)]
        assert not differ, f"other files: {differ}"

    # -- what an administrator does ---------------------------------------------------------------

    def create(self, topic: str = "t", partitions: int = 1, **configs: str) -> bytes:
        """Create a topic, and return its id."""
        request = creation(topic, partitions, configs)
        (made,) = self.ask(create_topics, request).topics
        if not made.error_code:
            self.ids[topic] = made.topic_id
        return self.ids.get(topic, bytes(16))

    def delete(self, topic: str = "t") -> None:
        state = delete_topics.DeleteTopicState(name=topic)
        self.ask(delete_topics, delete_topics.DeleteTopicsRequest(topics=[state], timeout_ms=5000))

    def configure(self, topic: str = "t", **configs: str) -> None:
        module = incremental_alter_configs
        resource = module.AlterConfigsResource(
            resource_type=_TOPIC,
            resource_name=topic,
            configs=[
                module.AlterableConfig(
                    name=key.replace("_", "."), config_operation=_SET, value=value
                )
                for key, value in configs.items()
            ],
        )
        request = module.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        self.ask(module, request)

    def lead(self, topic: str = "t", index: int = 0, **changes: Any) -> None:
        """Send a decision of the controller about a partition: fields of its state that change."""

        async def decide(side: Side) -> object:
            partition = side.partition(topic, index)
            fields = {
                "leader": partition.leader_id,
                "leader_epoch": partition.leader_epoch,
                "isr": list(partition.isr),
                "replicas": list(partition.replicas),
                **changes,
            }
            state = leader_and_isr.LeaderAndIsrPartitionState(
                partition_index=index,
                controller_epoch=1,
                partition_epoch=partition.partition_epoch + 1,
                **fields,
            )
            states = leader_and_isr.LeaderAndIsrTopicState(
                topic_name=topic, topic_id=partition.topic_id, partition_states=[state]
            )
            return await side.broker._replication.replicas.apply_leader_and_isr(
                leader_and_isr.LeaderAndIsrRequest(
                    controller_id=0,
                    controller_epoch=1,
                    type=1,
                    topic_states=[states],
                    live_leaders=[],
                )
            )

        self.both(decide)

    def wait(self, seconds: float) -> None:
        self.both(lambda _: asyncio.sleep(seconds))


@contextmanager
def twins(seed: int = 1, *, port: int = 9092, **keys: str) -> Iterator[Twins]:
    """Run two brokers; at the end their states and files must be the same."""
    pair = Twins(seed, port=port, **keys)
    serve = Repeats.serve

    def counted(repeats: Repeats, frame: memoryview, now_ms: int) -> list[Any] | None:
        parts = serve(repeats, frame, now_ms)
        pair.hits[repeats._api.key, repeats._version] += parts is not None
        return parts

    learn, append = Repeats.learn, Partition.append

    def learning(repeats: Repeats, *request: Any) -> None:
        try:
            learn(repeats, *request)
        except Exception as fault:
            if any(side.loop.is_running() for side in pair.sides):
                pair.faults.append(fault)
            raise

    def counting(partition: Partition, *args: Any, **options: Any) -> LogAppendInfo:
        info = append(partition, *args, **options)
        pair.appends += options.get("origin", Origin.CLIENT) is Origin.CLIENT
        return info

    with (
        patch.object(Repeats, "serve", counted),
        patch.object(Repeats, "learn", learning),
        patch.object(Partition, "append", counting),
        # A broker without fast paths postpones no completion, and the logs are compared.
        patch.object(postponed, "DELAY_MS", 0),
    ):
        try:
            pair.both(lambda side: side.start(port))
            yield pair
            pair.stop()
        finally:
            for side in pair.sides:
                side.close()
