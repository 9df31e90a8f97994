"""Durability of acknowledgements: sent after the fsync where required, never after a failed one."""

import asyncio
import copy
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from barnabas.broker.loop.offload import InlineOffload, ThreadOffload
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import delete_records, describe_log_dirs
from barnabas.protocol.records.batch import iter_headers
from tests.support.data_path import Client, batch, connected, running_in_memory
from tests.support.mem_files import Fault, MemFile, MemFiles
from tests.support.waiting import eventually

T = TypeVar("T")


class HeldOffload(InlineOffload):
    """Keeps the flusher waiting until the test releases it."""

    def __init__(self) -> None:
        self.held = False
        self.rounds: list[Callable[[], None]] = []

    def submit(self, queue: str, work: Callable[[], T]) -> "asyncio.Future[T]":
        if not self.held or not queue.startswith("flush"):
            return super().submit(queue, work)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.rounds.append(lambda: future.set_result(work()))
        return future

    def release(self) -> None:
        """Let the waiting flush run."""
        self.rounds.pop(0)()


async def values_in_log(client: Client) -> int:
    """Return how many records a consumer can read from the beginning."""
    end = (await client.list_offset(-1)).offset
    read = 0
    while read < end:
        fetched = await client.fetch_one(read)
        assert fetched.error_code == 0
        read = [header.next_offset for _, header in iter_headers(fetched.records)][-1]
    return read


@pytest.mark.parametrize("acks", [-1, 1])
async def test_with_flush_messages_1_an_answer_waits_for_the_fsync(acks: int) -> None:
    offload = HeldOffload()
    async with (
        running_in_memory(MemFiles(), offload, log_flush_interval_messages=1) as broker,
        connected(broker) as client,
        connected(broker) as reader,
    ):
        await client.create()
        offload.held = True
        answer = asyncio.create_task(client.produce(batch(b"a"), acks=acks))
        await eventually(lambda: offload.rounds)
        assert (await reader.fetch_one(0)).high_watermark == 0
        assert not answer.done()
        offload.release()
        assert (await answer).error_code == 0
        assert (await reader.fetch_one(0)).high_watermark == 1
        offload.held = False


async def test_producers_that_wait_share_one_fsync() -> None:
    offload = HeldOffload()
    async with (
        running_in_memory(MemFiles(), offload, log_flush_interval_messages=1) as broker,
        connected(broker) as client,
    ):
        await client.create()
        offload.held = True
        answers = [asyncio.create_task(client.produce(batch(b"first")))]
        await eventually(lambda: offload.rounds)
        answers += [asyncio.create_task(client.produce(batch(b"more"))) for _ in range(6)]
        end = client.list_offset(-1)
        offload.release()
        await eventually(lambda: offload.rounds)
        offload.release()
        assert {answer.error_code for answer in await asyncio.gather(*answers)} == {0}
        assert not offload.rounds
        offload.held = False
        assert (await end).offset == 7


async def test_produce_does_not_wait_for_the_fsync_of_another_log() -> None:
    offload = HeldOffload()
    async with (
        running_in_memory(MemFiles(), offload, log_flush_interval_messages=1) as broker,
        connected(broker) as client,
        connected(broker) as other,
    ):
        await client.create(partitions=2)
        offload.held = True
        slow = asyncio.create_task(client.produce(batch(b"slow")))
        await eventually(lambda: len(offload.rounds) == 1)
        quick = asyncio.create_task(other.produce(batch(b"quick"), index=1))
        await eventually(lambda: len(offload.rounds) == 2)
        offload.rounds.pop()()
        assert (await quick).error_code == 0
        assert not slow.done()
        offload.release()
        assert (await slow).error_code == 0
        offload.held = False


async def test_slow_acknowledgement_times_out_and_keeps_the_record() -> None:
    offload = HeldOffload()
    async with (
        running_in_memory(MemFiles(), offload, log_flush_interval_messages=1) as broker,
        connected(broker) as client,
    ):
        await client.create()
        offload.held = True
        answer = await client.produce(batch(b"a"), timeout_ms=20)
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        offload.release()
        offload.held = False
        assert (await client.list_offset(-1)).offset == 1


@pytest.mark.parametrize("seed", range(5))
async def test_records_acknowledged_after_fsync_survive_power_loss(seed: int) -> None:
    files = MemFiles()
    async with (
        running_in_memory(files, log_flush_interval_messages=1) as broker,
        connected(broker) as client,
    ):
        await client.create()
        for number in range(10):
            assert (await client.produce(batch(b"%d" % number))).error_code == 0
        after = copy.deepcopy(files)
    after.crash(seed)
    async with running_in_memory(after) as broker, connected(broker) as client:
        assert await values_in_log(client) == 10


async def test_acknowledged_records_survive_a_crash_of_the_process() -> None:
    files = MemFiles()
    async with running_in_memory(files) as broker, connected(broker) as client:
        await client.create()
        for number in range(10):
            assert (await client.produce(batch(b"%d" % number))).error_code == 0
        after = copy.deepcopy(files)
    after.kill()
    async with running_in_memory(after) as broker, connected(broker) as client:
        assert await values_in_log(client) == 10
        assert (await client.produce(batch(b"next"))).base_offset == 10


async def test_log_directory_that_fails_at_start_is_reported_and_the_others_serve() -> None:
    files = MemFiles()
    async with (
        running_in_memory(files, log_dirs="/one,/two") as broker,
        connected(broker) as client,
    ):
        await client.create(partitions=2)
        for index in (0, 1):
            await client.produce(batch(b"a"), index=index)
    files.faults.append(Fault("open", "/two/.lock"))
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    async with (
        running_in_memory(files, log_dirs="/one,/two") as broker,
        connected(broker) as client,
    ):
        codes = [(await client.produce(batch(b"b"), index=index)).error_code for index in (0, 1)]
        assert codes == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
        assert not broker.failed.is_set()
    async with (
        running_in_memory(files, log_dirs="/one,/two") as broker,
        connected(broker) as client,
    ):
        assert [(await client.list_offset(-1, index=index)).offset for index in (0, 1)] == [2, 1]
    assert faults == []


async def delete_before(client: Client, offset: int, index: int = 0) -> Any:
    partition = delete_records.DeleteRecordsPartition(partition_index=index, offset=offset)
    topic = delete_records.DeleteRecordsTopic(name="t", partitions=[partition])
    answer = await client.connection.request(
        delete_records.API, delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=5000)
    )
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("death", [MemFiles.kill, lambda files: files.crash(0)])
async def test_deleted_records_stay_deleted_after_a_crash(
    death: Callable[[MemFiles], None],
) -> None:
    files = MemFiles()
    async with running_in_memory(files) as broker, connected(broker) as client:
        await client.create(partitions=2)
        for number in range(10):
            await client.produce(batch(b"%d" % number))
        assert (await delete_before(client, 7)).low_watermark == 7
        after = copy.deepcopy(files)
    death(after)
    async with running_in_memory(after) as broker, connected(broker) as client:
        assert (await client.list_offset(-2)).offset == 7
        assert (await client.fetch_one(6)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await client.produce(batch(b"next"))).base_offset in range(7, 11)


async def test_delete_records_that_cannot_be_written_is_not_acknowledged() -> None:
    files = MemFiles()
    async with (
        running_in_memory(files, log_dirs="/one,/two") as broker,
        connected(broker) as client,
    ):
        await client.create(partitions=2)
        await client.produce(batch(b"a"))
        files.faults.append(Fault("sync", "log-start-offset-checkpoint.tmp"))
        answer = await delete_before(client, 1)
        assert (answer.error_code, answer.low_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert (await client.produce(batch(b"a"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.produce(batch(b"a"), index=1)).error_code == 0


async def test_a_clean_restart_keeps_topics_records_and_epochs() -> None:
    files = MemFiles()
    async with running_in_memory(files) as broker, connected(broker) as client:
        topic_id = await client.create(partitions=3)
        await client.produce(batch(b"a"), index=2)
    async with running_in_memory(files) as broker, connected(broker) as client:
        assert (await client.list_offset(-1, index=2)).offset == 1
        answer = await client.produce(batch(b"b"), topic="", topic_id=topic_id, index=2, version=13)
        assert answer.base_offset == 1


class MeetingFiles(MemFiles):
    """A disk that finishes the fsync of one log only when another log waits for it too."""

    def __init__(self) -> None:
        super().__init__()
        self.both = threading.Barrier(2, timeout=30)
        self.ending = False

    def open(self, path: str, *, create: bool = False) -> MemFile:
        file = super().open(path, create=create)
        return MeetingFile(self, path, file._content) if path.endswith(".log") else file


class MeetingFile(MemFile):
    __slots__ = ()

    _files: MeetingFiles

    def sync(self) -> None:
        if self._files.ending:
            self._files.both.wait()
        super().sync()


async def test_stop_syncs_logs_concurrently() -> None:
    files = MeetingFiles()
    async with (
        running_in_memory(files, ThreadOffload()) as broker,
        connected(broker) as client,
    ):
        await client.create(partitions=2)
        for index in (0, 1):
            await client.produce(batch(b"a"), index=index)
        files.ending = True
    files.ending = False
    files.crash(0)
    async with running_in_memory(files) as broker, connected(broker) as client:
        assert [(await client.list_offset(-1, index=index)).offset for index in (0, 1)] == [1, 1]


async def test_failed_fsync_is_never_acknowledged_and_takes_the_directory_offline() -> None:
    files = MemFiles()
    async with (
        running_in_memory(files, log_flush_interval_messages=1) as broker,
        connected(broker) as client,
    ):
        await client.create()
        files.faults.append(Fault("sync", ".log"))
        answer = await client.produce(batch(b"a"))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await asyncio.wait_for(broker.failed.wait(), 5)
        assert broker.not_ready() == ["failed"]
        again = await client.produce(batch(b"b"))
        assert again.error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_failed_write_takes_one_directory_offline_and_the_others_serve() -> None:
    files = MemFiles()
    async with (
        running_in_memory(files, log_dirs="/one,/two") as broker,
        connected(broker) as client,
    ):
        await client.create(partitions=2)
        files.faults.append(Fault("append", "t-0/00000000000000000000.log"))
        failed = await client.produce(batch(b"a"), index=0)
        assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.produce(batch(b"a"), index=1)).error_code == 0
        assert not broker.failed.is_set()
        request = describe_log_dirs.DescribeLogDirsRequest(topics=None)
        told = await client.connection.request(describe_log_dirs.API, request)
        assert [(each.log_dir, each.error_code) for each in told.results] == [
            ("/one", ErrorCode.KAFKA_STORAGE_ERROR),
            ("/two", ErrorCode.NONE),
        ]
        for answer in (await client.fetch_one(0), await client.list_offset(-1)):
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.fetch_one(0, index=1)).high_watermark == 1
