"""Two brokers on virtual time, one of them without fast paths: the same requests must have the same
answers and the same effects."""

import asyncio
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.repeats import Repeats
from barnabas.coordinator import postponed
from barnabas.protocol.apis import APIS
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.header import decode_response_header
from barnabas.protocol.schema import Api, WireType, fields_of
from tests.simulation.one_broker import broker_on
from tests.support.mem_files import MemFiles
from tests.support.virtual_loop import VirtualLoop

T = TypeVar("T")
QUESTIONS = "kafka_server_addpartitionstotxnmanager_verificationtimems"
"""The times of questions to the coordinator; a partition that was told does not ask."""
OF_THE_PROCESS = ("process_", "python_")
PATIENCE_S = 45.0
"""Virtual seconds for the answers to a write; a request may wait until its timeout."""
ADMIN = 99
"""The connection of the administrator."""
VERSIONS = {each.module: each.served for each in APIS.values()}


def api_of(name: str) -> Api:
    found: Api = import_module(f"barnabas.protocol.messages.{name}").API
    return found


def message(cls: Any, **fields: Any) -> Any:
    """Return a message; a dict stands for a struct in it."""
    types = {each.name: each.type for each in fields_of(cls)}
    return cls(**{name: _value(types[name], value) for name, value in fields.items()})


def _value(kind: WireType | None, value: Any) -> Any:
    assert kind is not None
    if isinstance(value, dict):
        return message(kind.struct, **value)
    if isinstance(value, list):
        return [_value(kind.item, each) for each in value]
    return value


def frame(
    name: str, version: int, *, number: int = 1, client: bytes | None = b"client", **fields: Any
) -> bytes:
    """Return a request, by the name of its module, without its length."""
    api = api_of(name)
    length = -1 if client is None else len(client)
    header = struct.pack(">hhih", api.key, version, number, length) + (client or b"")
    tags = b"\0" if api.is_flexible(version) else b""
    return header + tags + encode(message(api.request, **fields), version)


class Wire(NamedTuple):
    """A client's connection that sends bytes as they are."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def exchange(self, data: bytes, answers: int) -> list[bytes]:
        """Send bytes, and return the answers: as many as given, or what comes within PATIENCE_S or
        before the broker closes the connection."""
        self.writer.write(data)
        found: list[bytes] = []
        with suppress(TimeoutError, asyncio.IncompleteReadError):
            while True:
                # A request may be answered more often than expected.
                async with asyncio.timeout(PATIENCE_S if len(found) < answers else 0.01):
                    size = await self.reader.readexactly(4)
                    found.append(await self.reader.readexactly(int.from_bytes(size)))
        return found


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

    def run(self, work: Awaitable[T]) -> T:
        asyncio.set_event_loop(self.loop)
        try:
            return self.loop.run_until_complete(work)
        finally:
            asyncio.set_event_loop(None)

    async def stop(self) -> None:
        for wire in self.wires.values():
            wire.writer.close()
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
        if wire is None or wire.reader.at_eof():
            wire = Wire(*await asyncio.open_connection("sim", 9092))
            self.wires[connection] = wire
        return await wire.exchange(data, answers)

    def peer(self, connection: int = 0) -> Any:
        """Return the broker's end of a connection."""
        transport: Any = self.wires[connection].writer.transport
        return transport.peer.get_protocol()

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        return self.broker._replication.replicas.partition(topic, index)

    def state(self) -> dict[str, object]:
        """Return what a client or the next start could see."""
        seen: dict[str, object] = {"time": self.loop.time()}
        for partition in self.broker._replication.replicas:
            log, producers = partition.log, partition.log.producers
            seen[f"{partition.topic}-{partition.index}"] = (
                partition.leader_epoch,
                log.log_start_offset,
                log.log_end_offset,
                log.high_watermark,
                log.last_stable_offset,
                log.flushed_offset,
                producers.map_end_offset,
                # Not the verifications in progress: only a broker with fast paths tells its
                # partitions whom to expect, and a refused batch leaves the other one asking.
                [replace(entry, verification=None) for entry in producers],
                dict(producers.ongoing),
                dict(producers.unreplicated),
                [(each.size, each._since_index_entry, dict(each._hints)) for each in log.segments],
            )
        for family in self.broker.registry.snapshot():
            if not family.name.startswith(OF_THE_PROCESS) and family.name != QUESTIONS:
                seen[family.name] = sorted(family.samples)
        return seen | {path: node and node.data for path, node in self.files._nodes.items()}


class Twins:
    """Both brokers. Each method does the same on both, and compares what comes of it."""

    def __init__(self, seed: int = 1, **keys: str) -> None:
        self.sides = tuple(Side(seed, fast=fast, **keys) for fast in (True, False))
        self.fast = self.sides[0]
        self.hits: Counter[str] = Counter()
        """The requests that were answered from memory, by the name of the API."""
        self.faults: list[Exception] = []
        """The errors for which a request was not remembered: the broker logs them."""
        self.numbers = 0
        self.ids: dict[str, bytes] = {}

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
        """Send frames in one write on a connection; return the answers."""
        data = b"".join(struct.pack(">i", len(each)) + each for each in frames)
        wanted = len(frames) if answers is None else answers
        found = self.both(lambda side: side.exchange(on, data, wanted))
        fast, plain = [side.wires[on].reader.at_eof() for side in self.sides]
        assert fast == plain, "one broker closes the connection"
        return found

    def ask(
        self,
        name: str,
        version: int | None = None,
        *,
        on: int = ADMIN,
        behind: bytes = b"",
        **fields: Any,
    ) -> Any:
        """Send a request by the name of its module, perhaps with other bytes behind it; return the
        answer, or None without one."""
        self.numbers += 1
        api, version = api_of(name), VERSIONS[name][-1] if version is None else version
        request = frame(name, version, number=self.numbers, **fields) + behind
        # Without acknowledgements a producer gets no answer.
        found = self.exchange(request, on=on, answers=fields.get("acks", 1) != 0)
        if not found:
            return None
        number, at = decode_response_header(api.key, version, found[0])
        assert number == self.numbers
        return decode(api.response, version, found[0], at)

    def compare(self) -> None:
        """Compare states and files."""
        fast, plain = [side.state() for side in self.sides]
        differ = {
            key: (fast.get(key), plain.get(key))
            for key in {*fast, *plain}
            if fast.get(key) != plain.get(key)
        }
        assert not differ, f"with the fast path, and without: {differ}"

    def stop(self) -> None:
        assert not self.faults
        self.compare()
        self.both(Side.stop)
        self.compare()

    # -- what an administrator does ---------------------------------------------------------------

    def create(self, topic: str = "t", partitions: int = 1, **configs: str) -> None:
        """Create a topic, unless it is there."""
        named = [{"name": key.replace("_", "."), "value": configs[key]} for key in configs]
        asked = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
        topics = [asked | {"assignments": [], "configs": named}]
        (made,) = self.ask("create_topics", topics=topics, timeout_ms=5000).topics
        if not made.error_code:
            self.ids[topic] = made.topic_id

    def delete(self, topic: str = "t", wait_s: float = 2) -> None:
        self.ask("delete_topics", topics=[{"name": topic}], timeout_ms=5000)
        self.wait(wait_s)

    def grow(self, topic: str, count: int) -> None:
        """Have more partitions."""
        topics = [{"name": topic, "count": count, "assignments": None}]
        self.ask("create_partitions", topics=topics, timeout_ms=5000, validate_only=False)
        self.wait(2)

    def configure(self, name: str = "t", kind: int = 2, **configs: str) -> None:
        """Set configurations of a topic, or of a resource of another kind."""
        named = [
            {"name": key.replace("_", "."), "config_operation": 0, "value": value}
            for key, value in configs.items()
        ]
        resource = {"resource_type": kind, "resource_name": name, "configs": named}
        self.ask("incremental_alter_configs", resources=[resource], validate_only=False)

    def trim(self, offset: int, topic: str = "t", index: int = 0) -> None:
        """Delete the records before an offset."""
        wanted = {"name": topic, "partitions": [{"partition_index": index, "offset": offset}]}
        self.ask("delete_records", topics=[wanted], timeout_ms=1000)

    def limit(self, bytes_per_s: float | None) -> None:
        """Set the quota of every client, or remove it."""
        is_gone = bytes_per_s is None
        quota = {"key": "producer_byte_rate", "value": bytes_per_s or 0.0, "remove": is_gone}
        entity = [{"entity_type": "client-id", "entity_name": "client"}]
        entries = [{"entity": entity, "ops": [quota]}]
        self.ask("alter_client_quotas", entries=entries, validate_only=False)

    def lead(self, topic: str = "t", index: int = 0, later: int = 0, **changes: Any) -> None:
        """Send a decision of the controller about a partition: fields of its state that change.
        The leader epoch is `later` than before."""

        async def decide(side: Side) -> object:
            partition = side.partition(topic, index)
            fields = {
                "leader": partition.leader_id,
                "leader_epoch": partition.leader_epoch + later,
                "isr": list(partition.isr),
                "replicas": list(partition.replicas),
                "partition_index": index,
                "controller_epoch": 1,
                "partition_epoch": partition.partition_epoch + 1,
                **changes,
            }
            state = {"topic_name": topic, "topic_id": partition.topic_id}
            decision = message(
                api_of("leader_and_isr").request,
                controller_id=0,
                controller_epoch=1,
                type=1,
                topic_states=[state | {"partition_states": [fields]}],
                live_leaders=[],
            )
            return await side.broker._replication.replicas.apply_leader_and_isr(decision)

        self.both(decide)

    def wait(self, seconds: float) -> None:
        self.both(lambda _: asyncio.sleep(seconds))


@contextmanager
def twins(seed: int = 1, **keys: str) -> Iterator[Twins]:
    """Run two brokers; at the end their states and files must be the same."""
    pair = Twins(seed, **keys)
    serve, learn = Repeats.serve, Repeats.learn

    def counted(repeats: Repeats, *request: Any) -> list[Any] | None:
        parts = serve(repeats, *request)
        pair.hits[APIS[repeats._api.key].module] += parts is not None
        return parts

    def learning(repeats: Repeats, *request: Any) -> None:
        try:
            learn(repeats, *request)
        except Exception as fault:
            if any(side.loop.is_running() for side in pair.sides):
                pair.faults.append(fault)
            raise

    with (
        patch.object(Repeats, "serve", counted),
        patch.object(Repeats, "learn", learning),
        # A broker without fast paths postpones no completion, and the logs are compared.
        patch.object(postponed, "DELAY_MS", 0),
    ):
        try:
            pair.both(lambda side: side.broker.start())
            yield pair
            pair.stop()
        finally:
            for side in pair.sides:
                side.close()
