"""The consumer and fetched batches with scripted Fetch responses."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.batches import FetchedBatches, fetch_batches, whole_batches
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import fetch
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.control import ControlType, TxnMarker
from barnabas.protocol.records.record import Record, build_batch, iter_records, rewrite_batch
from barnabas.protocol.topic_partition import TopicPartition
from tests.support.markers import marker_batch

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def batch(offset: int, *values: bytes, **options: Any) -> bytes:
    records = [Record(offset + n, 1, None, value, ()) for n, value in enumerate(values)]
    return build_batch(records, base_offset=offset, **options)


class Script:
    """A cluster of one broker that responds to each Fetch with the next list of partitions."""

    timeout = request_timeout = 1.0

    def __init__(self, *answers: list[fetch.PartitionData]) -> None:
        self.answers = list(answers)

    async def leader(self, topic: str, partition: int) -> int:  # noqa: ARG002
        return 0

    async def topic(self, name: str) -> SimpleNamespace:  # noqa: ARG002
        return SimpleNamespace(topic_id=bytes(16))

    async def connection_to(self, node: int, *, purpose: int) -> "Script":  # noqa: ARG002
        return self

    def version_for(self, api: object) -> int:  # noqa: ARG002
        return 12

    async def request(self, *_: object, **__: object) -> fetch.FetchResponse:
        row = fetch.FetchableTopicResponse(topic="t", partitions=self.answers.pop(0))
        return fetch.FetchResponse(responses=[row])

    async def retrying(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        return await attempt()


def answer(partition: int, records: bytes = b"", **fields: Any) -> fetch.PartitionData:
    known = {
        "error_code": 0,
        "high_watermark": 9,
        "last_stable_offset": 9,
        "aborted_transactions": None,
        **fields,
    }
    return fetch.PartitionData(partition_index=partition, records=records, **known)


def consumer_of(script: Script, partitions: int = 1, **settings: Any) -> Consumer:
    consumer = Consumer(script, FetchSettings(**settings))  # type: ignore[arg-type]
    consumer.assign({("t", partition): 0 for partition in range(partitions)})
    return consumer


async def values(consumer: Consumer) -> list[bytes | None]:
    return [message.value for message in await consumer.poll()]


async def test_poll_returns_received_records_if_another_partition_fails() -> None:
    script = Script(
        [answer(0, batch(0, b"a", b"b")), answer(1, error_code=int(NOT_LEADER))],
        [answer(1, error_code=int(NOT_LEADER))],
    )
    consumer = consumer_of(script, partitions=2)
    assert await values(consumer) == [b"a", b"b"]
    assert consumer.positions == {("t", 0): 2, ("t", 1): 0}
    with pytest.raises(KafkaError) as caught:
        await consumer.poll()
    assert caught.value.code is NOT_LEADER


async def test_poll_drops_records_that_were_fetched_before_a_seek() -> None:
    class Sought(Script):
        async def request(self, *_: object, **__: object) -> fetch.FetchResponse:
            if consumer.positions["t", 0] == 0:
                consumer.seek(("t", 0), 2)
            return await super().request()

    consumer = consumer_of(Sought([answer(0, batch(0, b"a"))], [answer(0, batch(2, b"c"))]))
    assert await values(consumer) == []
    assert consumer.positions == {("t", 0): 2}
    assert await values(consumer) == [b"c"]
    with pytest.raises(ValueError, match="not assigned"):
        consumer.seek(("t", 1), 0)


async def test_poll_skips_records_of_a_batch_before_the_position() -> None:
    consumer = consumer_of(Script([answer(0, batch(0, b"a", b"b", b"c"))]))
    consumer.positions["t", 0] = 2
    assert await values(consumer) == [b"c"]


async def test_poll_leaves_incomplete_batch_for_the_next_poll() -> None:
    whole, cut = batch(0, b"a"), batch(1, b"b" * 50)
    for length in (1, 11, 12, 60, len(cut) - 1):
        assert bytes(whole_batches(whole + cut[:length])) == whole
    consumer = consumer_of(Script([answer(0, whole + cut[:70])], [answer(0, cut)]))
    assert await values(consumer) == [b"a"]
    assert await values(consumer) == [b"b" * 50]


async def test_poll_raises_for_damaged_batch_and_keeps_position() -> None:
    data = bytearray(batch(0, b"abc"))
    data[-2] ^= 1
    consumer = consumer_of(Script([answer(0, bytes(data))]))
    with pytest.raises(KafkaError) as caught:
        await consumer.poll()
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert consumer.positions == {("t", 0): 0}


def transactions() -> list[fetch.PartitionData]:
    """Producer 1 aborts, producer 2 commits, and producer 1 then commits another."""
    of = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}

    def end(kind: ControlType, offset: int, producer: int) -> bytes:
        return marker_batch(TxnMarker(producer, 0, 0, bool(kind)), 1, offset=offset)

    data = (
        batch(0, b"aborted", producer_id=1, **of)
        + batch(1, b"committed", producer_id=2, **of)
        + end(ControlType.ABORT, 2, 1)
        + end(ControlType.COMMIT, 3, 2)
        + batch(4, b"again", producer_id=1, **of)
        + end(ControlType.COMMIT, 5, 1)
    )
    aborted = [fetch.AbortedTransaction(producer_id=1, first_offset=0)]
    return [answer(0, data, aborted_transactions=aborted)]


async def test_read_committed_skips_aborted_records_and_markers() -> None:
    consumer = consumer_of(Script(transactions()))
    assert await values(consumer) == [b"committed", b"again"]
    assert consumer.positions == {("t", 0): 6}


async def test_poll_skips_a_marker_that_compaction_has_emptied() -> None:
    """Compaction keeps the last batch of a producer without its records."""
    marker = marker_batch(TxnMarker(1, 0, 0, committed=False), 1, offset=3)
    ((_, header),) = iter_headers(marker)
    emptied = rewrite_batch(header, [])
    consumer = consumer_of(Script([answer(0, emptied + batch(4, b"a"), aborted_transactions=[])]))
    assert await values(consumer) == [b"a"]


async def test_read_committed_end_is_the_last_stable_offset() -> None:
    rows = [answer(0, batch(0, b"a"), last_stable_offset=1)]
    committed, all_of_it = (
        consumer_of(Script(rows)),
        consumer_of(Script(rows), read_committed=False),
    )
    await asyncio.gather(committed.poll(), all_of_it.poll())
    assert committed.at_end(("t", 0))
    assert not all_of_it.at_end(("t", 0))


async def fetched(script: Script, offset: int, **settings: Any) -> FetchedBatches:
    wanted = FetchSettings(**settings)
    return await fetch_batches(script, TopicPartition("t", 0), offset, wanted)  # type: ignore[arg-type]


def values_in(found: FetchedBatches) -> list[bytes | None]:
    return [
        record.value
        for pos, header in found.visible
        for record in iter_records(found.data, pos, header)
    ]


async def test_fetch_batches_returns_visible_batches_and_the_offsets_of_the_partition() -> None:
    rows = transactions()
    rows[0].last_stable_offset, rows[0].log_start_offset = 7, 0
    found = await fetched(Script(rows), 0)
    assert values_in(found) == [b"committed", b"again"]
    assert found[2:] == (6, 7, 9, 0)
    uncommitted = await fetched(Script(rows), 0, read_committed=False)
    assert values_in(uncommitted) == [b"aborted", b"committed", b"again"]
    assert uncommitted.data == found.data == rows[0].records


async def test_fetch_batches_moves_behind_markers_alone_but_not_without_a_batch() -> None:
    marker = marker_batch(TxnMarker(1, 0, 0, True), 1, offset=4)
    assert (await fetched(Script([answer(0, marker)]), 4))[1:3] == ([], 5)
    assert (await fetched(Script([answer(0, batch(4, b"cut")[:-1])]), 4))[1:3] == ([], 4)
    assert (await fetched(Script([answer(0)]), 4))[1:3] == ([], 4)


@pytest.mark.parametrize("read_committed", [False, True])
async def test_fetch_batches_raises_for_a_damaged_batch(read_committed: bool) -> None:
    data = bytearray(batch(0, b"abc"))
    data[-2] ^= 1
    with pytest.raises(KafkaError) as caught:
        await fetched(Script([answer(0, bytes(data))]), 0, read_committed=read_committed)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


async def test_fetch_batches_raises_for_an_offset_out_of_range_in_spite_of_offset_reset() -> None:
    out_of_range = answer(0, error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE))
    with pytest.raises(KafkaError, match="offset 70 of t-0") as caught:
        await fetched(Script([out_of_range]), 70)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_fetch_batches_raises_if_the_answer_lacks_the_partition() -> None:
    with pytest.raises(KafkaError, match="lacks t-0") as caught:
        await fetched(Script([answer(5)]), 0)
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
