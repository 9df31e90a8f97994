"""Files damaged while the broker is stopped: it serves intact data, and names damaged files.

`BARNABAS_DAMAGES=5000 pytest tests/simulation/test_damaged_disk.py` is the long run.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

import pytest

from barnabas.broker.store.journal_format import JournalError
from barnabas.client.connection import Connection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import find_coordinator, offset_commit, offset_fetch
from barnabas.protocol.records.batch import CorruptRecordError, iter_headers
from barnabas.protocol.records.record import Record, build_batch
from barnabas.storage.files.errors import LogDirFailed
from barnabas.storage.files.log_dir import LOG_STARTS, RECOVERY_POINTS
from barnabas.storage.opening.meta_properties import MetaPropertiesError
from tests.simulation.one_broker import broker_on
from tests.support.data_path import Client
from tests.support.mem_files import MemFiles
from tests.support.virtual_loop import BIRTHDAY_MS, VirtualLoop

DAMAGES = int(os.environ.get("BARNABAS_DAMAGES", "200"))
PARTITIONS = (0, 1)
COMMITTED = 17
KEYS = {"log_roll_ms": "1000", "log_index_interval_bytes": "0", "offsets_topic_num_partitions": "1"}

Disk = dict[str, bytes | None]
"""Contents by path, None for a directory."""
Log = dict[int, bytes]
"""Batches by base offset."""


@dataclass
class Past:
    """The disk of a stopped broker, and the records and offsets that it had acknowledged."""

    disk: Disk
    logs: dict[int, Log]
    clean: bool


@dataclass
class Damage:
    """The damage done, by file."""

    paths: list[str] = field(default_factory=list)
    ranges: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def add(self, path: str, start: int, end: float = float("inf")) -> None:
        self.paths.append(path)
        self.ranges.setdefault(path, []).append((start, end))


def on_virtual_time(work: Callable[[VirtualLoop], Awaitable[None]]) -> None:
    """Run the coroutine function to its end. Raises Deadlock or TimeoutError if it hangs."""
    loop = VirtualLoop(1)
    asyncio.set_event_loop(loop)

    async def in_time() -> None:
        async with asyncio.timeout(3600):
            await work(loop)

    try:
        loop.run_until_complete(in_time())
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()


async def connect() -> Client:
    return Client(await Connection.open("sim", 9092))


async def served(client: Client, index: int) -> tuple[Log, int]:
    """Return the records of a partition up to its end or to an error, and that error."""
    found: Log = {}
    start = await client.list_offset(-2, topic="orders", index=index)
    end = await client.list_offset(-1, topic="orders", index=index)
    offset = start.offset
    while not start.error_code and offset < end.offset:
        answer = await client.fetch_one(offset, topic="orders", index=index)
        before, data = offset, bytes(answer.records or b"")
        try:
            for position, header in iter_headers(data):
                found.setdefault(header.base_offset, data[position : position + header.size])
                offset = max(offset, header.next_offset)
        except CorruptRecordError:
            return found, ErrorCode.CORRUPT_MESSAGE
        if answer.error_code or offset == before:
            return found, answer.error_code or ErrorCode.CORRUPT_MESSAGE
    return found, start.error_code


async def committed(client: Client) -> tuple[int, int]:
    """Return the group's committed offset and the error code."""
    topics = [offset_fetch.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    group = offset_fetch.OffsetFetchRequestGroup(group_id="readers", topics=topics)
    request = offset_fetch.OffsetFetchRequest(groups=[group])
    while True:
        answer = await client.connection.request(offset_fetch.API, request, version=8)
        (of_group,) = answer.groups
        if of_group.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            break
        await asyncio.sleep(0.1)
    if of_group.error_code:
        return -1, of_group.error_code
    return of_group.topics[0].partitions[0].committed_offset, 0


async def commit(client: Client, offset: int) -> None:
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = offset_commit.OffsetCommitRequestTopic(name="orders", partitions=[partition])
    request = offset_commit.OffsetCommitRequest(group_id="readers", member_id="", topics=[topic])
    while True:
        answer = await client.connection.request(offset_commit.API, request, version=8)
        code = answer.topics[0].partitions[0].error_code
        if not code:
            return
        await asyncio.sleep(0.1)


async def write_past(loop: VirtualLoop, *, clean: bool) -> Past:
    """Write some segments, some batches after the last checkpoint, and a group's committed
    offset."""
    files = MemFiles()
    broker = broker_on(loop, 1, files, **KEYS)
    await broker.start()
    client = await connect()
    await client.create("orders", partitions=len(PARTITIONS))
    find = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["readers"])
    await client.connection.request(find_coordinator.API, find)
    sequence = 0
    for step in range(12):
        for _ in range(3):
            for index in PARTITIONS:
                options = {"producer_id": 4, "producer_epoch": 0, "base_sequence": sequence}
                now_ms = BIRTHDAY_MS + int(loop.time() * 1000)
                values = (b"%d/%d" % (index, sequence), bytes(40))
                records = [Record(at, now_ms, None, value, ()) for at, value in enumerate(values)]
                data = build_batch(records, **(options if index else {}))
                answer = await client.produce(data, topic="orders", index=index)
                assert answer.error_code == 0, answer
            sequence += 2
        await commit(client, step)
        # Segments roll first; the checkpoints are written later, followed by more records.
        await asyncio.sleep(70 if step == 8 else 2)
    await commit(client, COMMITTED)
    logs = {index: (await served(client, index))[0] for index in PARTITIONS}
    if clean:
        await client.connection.close()
        await broker.stop()
    return Past({path: read(files, path) for path in files._nodes}, logs, clean)


def read(files: MemFiles, path: str) -> bytes | None:
    return None if files.is_dir(path) else files.read_bytes(path)


def disk_of(contents: Disk) -> MemFiles:
    files = MemFiles()
    for path, data in sorted(contents.items()):
        if data is None:
            if path != "/":
                files.make_dir(path)
            continue
        file = files.open(path, create=True)
        file.append(data)
        file.sync()
    for path, data in contents.items():
        if data is None:
            files.sync_dir(path)
    return files


def damage(disk: Disk, chance: Random) -> tuple[Disk, Damage]:
    """Return a copy of the disk with one or two damaged files, and the damage."""
    disk, done = dict(disk), Damage()
    names = sorted(path for path, data in disk.items() if data)
    folders = sorted({os.path.dirname(path) for path in names})
    for _ in range(chance.choice((1, 1, 2))):
        folder = chance.choice(folders)
        path = chance.choice([name for name in names if os.path.dirname(name) == folder])
        data = disk.get(path)
        if not data:
            continue
        at = chance.randrange(len(data))
        match chance.choice(("flip", "flip", "zeros", "cut", "more", "twice", "none", "copy")):
            case "flip":
                bit = 1 << chance.randrange(8)
                disk[path] = data[:at] + bytes((data[at] ^ bit,)) + data[at + 1 :]
                done.add(path, at, at + 1)
            case "zeros":
                end = min(len(data), at + chance.randrange(1, 200))
                disk[path] = data[:at] + bytes(end - at) + data[end:]
                done.add(path, at, end)
            case "cut":
                disk[path] = data[:at]
                done.add(path, at)
            case "more":
                disk[path] = data + chance.randbytes(chance.randrange(1, 200))
                done.add(path, len(data))
            case "twice":
                end = min(len(data), at + chance.randrange(1, 200))
                disk[path] = data[:end] + data[at:]
                done.add(path, end)
            case "none":
                del disk[path]
                done.add(path, 0)
            case "copy":
                other = chance.choice(names)
                disk[other] = data
                done.add(other, 0)
    return disk, done


class Said(logging.Handler):
    """The broker's log events from warning up, and those with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.tracebacks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if record.exc_info:
            self.tracebacks.append(f"{record.getMessage()}: {record.exc_info}")


@contextmanager
def listening() -> Iterator[Said]:
    said, logger = Said(), logging.getLogger("barnabas")
    logger.addHandler(said)
    try:
        yield said
    finally:
        logger.removeHandler(said)


TOLD = (ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
Report = tuple[int, Damage, list[str]]
"""The context of a failure: number of the start, damage, log events."""
REFUSALS = (JournalError, MetaPropertiesError, LogDirFailed)


async def start_again(loop: VirtualLoop, past: Past, seed: int) -> None:
    disk, done = damage(past.disk, Random(seed))
    files = disk_of(disk)
    with listening() as said:
        for start in range(2):
            broker = broker_on(loop, seed, files, **KEYS)
            try:
                await broker.start()
            except REFUSALS as error:
                text = str(error)
                assert "\n" not in text, text
                assert any(path in text or "belongs" in text for path in done.paths), text
                return
            client = await connect()
            logs = {index: await served(client, index) for index in PARTITIONS}
            for index in PARTITIONS:
                for timestamp in (BIRTHDAY_MS + 10_000, -3):
                    found = await client.list_offset(timestamp, topic="orders", index=index)
                    assert found.error_code in TOLD, found
            offset = await committed(client)
            await client.connection.close()
            await broker.stop()
            report = (start, done, said.lines)
            assert not broker.failed.is_set(), report
            assert not said.tracebacks, (said.tracebacks, report)
            for index, (log, error) in logs.items():
                check(past, done, index, log, error, report)
            check_offset(done, *offset, report)


def check_offset(done: Damage, offset: int, error: int, report: Report) -> None:
    """Check that a group reads the offsets it committed last, unless its log or a file of it is
    damaged."""
    if not any(
        p.startswith(("/data/__consumer_offsets", "/data/metadata")) or p.count("/") == 2
        for p in done.paths
    ):
        assert (offset, error) == (COMMITTED, 0), report
    assert offset in {-1, *range(12), COMMITTED}, report


def check(
    past: Past,
    done: Damage,
    index: int,
    log: Log,
    error: int,
    report: Report,
) -> None:
    """Check that all records before the damage are there, and that damaged ones are not served."""
    if any(f"set aside topic='orders' partition={index}" in line for line in report[2]):
        assert not log
        return
    if f"/data/{LOG_STARTS}" in done.paths:
        # Kafka's format has no checksum: another number has the effect of another DeleteRecords.
        return
    whole = past.logs[index]
    first = first_damaged(past, done, index)
    for base, data in log.items():
        if base < first:
            assert whole.get(base) == data, (base, report)
    if not past.clean and first != float("inf"):
        scanned = scanned_from(past, done, index)
        for base, data in log.items():
            # Recovery reads records that no fsync covered, and stops before damaged ones. Offset
            # and epoch are not under a batch's CRC.
            assert base < scanned or data[16:] in {each[16:] for each in whole.values()}, report
    lost = [base for base in whole if base not in log and base < first]
    assert not lost, (lost, error, report)


def scanned_from(past: Past, done: Damage, index: int) -> float:
    if f"/data/{RECOVERY_POINTS}" in done.paths:
        return float("inf")
    lines = (past.disk[f"/data/{RECOVERY_POINTS}"] or b"").decode().splitlines()
    points = {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in lines[2:]}
    return points[f"orders {index}"]


def first_damaged(past: Past, done: Damage, index: int) -> float:
    """Return the first offset whose file is damaged, for a partition."""
    folder = f"/data/orders-{index}/"
    found = float("inf")
    batches = list(placed(past, index))
    for path in done.paths:
        if path.startswith(folder) and path.endswith(".log"):
            start = min(since for since, _ in done.ranges[path])
            found = min(
                [
                    found,
                    *(
                        base
                        for base, position, other, data in batches
                        if other > path or (other == path and position + len(data) > start)
                    ),
                ]
            )
    return found


def placed(past: Past, index: int) -> Iterator[tuple[int, int, str, bytes]]:
    """Yield each batch of a partition: base offset, position, file and bytes."""
    for path, data in sorted(past.disk.items()):
        if data and os.path.dirname(path) == f"/data/orders-{index}" and path.endswith(".log"):
            for position, header in iter_headers(data):
                yield header.base_offset, position, path, data[position : position + header.size]


@pytest.fixture(scope="module", params=[True, False], ids=["clean", "killed"])
def past(request: pytest.FixtureRequest) -> Past:
    pasts: list[Past] = []

    async def work(loop: VirtualLoop) -> None:
        pasts.append(await write_past(loop, clean=request.param))

    on_virtual_time(work)
    return pasts[0]


def test_broker_serves_intact_data_and_names_damaged_files(past: Past) -> None:
    for seed in range(DAMAGES):
        on_virtual_time(lambda loop, seed=seed: start_again(loop, past, seed))
