"""What a consumer makes of Fetch answers, told by a scripted cluster."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.consumer import Consumer, FetchSettings, whole_batches
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import fetch
from barnabas.protocol.records.control import ControlType, Marker, build_marker
from barnabas.protocol.records.record import Record, build_batch

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def batch(offset: int, *values: bytes, **options: Any) -> bytes:
    records = [Record(offset + n, 1, None, value, ()) for n, value in enumerate(values)]
    return build_batch(records, base_offset=offset, **options)


class Script:
    """A cluster of one broker that answers each Fetch with the next list of partitions."""

    timeout = 1.0

    def __init__(self, *answers: list[fetch.PartitionData]) -> None:
        self.answers = list(answers)

    async def leader(self, topic: str, partition: int) -> int:  # noqa: ARG002
        return 0

    async def topic(self, name: str) -> SimpleNamespace:  # noqa: ARG002
        return SimpleNamespace(topic_id=bytes(16))

    async def connection_to(self, node: int) -> "Script":  # noqa: ARG002
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


async def test_what_arrived_is_not_lost_when_another_partition_fails() -> None:
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


async def test_what_was_fetched_before_a_seek_is_not_shown_after_it() -> None:
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


async def test_a_position_inside_a_batch_skips_what_is_before_it() -> None:
    consumer = consumer_of(Script([answer(0, batch(0, b"a", b"b", b"c"))]))
    consumer.positions["t", 0] = 2
    assert await values(consumer) == [b"c"]


async def test_a_batch_that_the_size_limit_cut_is_left_for_the_next_poll() -> None:
    whole, cut = batch(0, b"a"), batch(1, b"b" * 50)
    for length in (1, 11, 12, 60, len(cut) - 1):
        assert bytes(whole_batches(whole + cut[:length])) == whole
    consumer = consumer_of(Script([answer(0, whole + cut[:70])], [answer(0, cut)]))
    assert await values(consumer) == [b"a"]
    assert await values(consumer) == [b"b" * 50]


async def test_a_damaged_batch_is_an_error_and_moves_nothing() -> None:
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
        marker = Marker(kind, 0)
        return build_marker(
            marker, offset=offset, timestamp=1, producer_id=producer, producer_epoch=0
        )

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


async def test_records_of_aborted_transactions_and_markers_are_not_shown() -> None:
    consumer = consumer_of(Script(transactions()))
    assert await values(consumer) == [b"committed", b"again"]
    assert consumer.positions == {("t", 0): 6}


async def test_the_end_is_the_last_stable_offset_for_those_who_read_committed() -> None:
    rows = [answer(0, batch(0, b"a"), last_stable_offset=1)]
    committed, all_of_it = (
        consumer_of(Script(rows)),
        consumer_of(Script(rows), read_committed=False),
    )
    await asyncio.gather(committed.poll(), all_of_it.poll())
    assert committed.at_end(("t", 0))
    assert not all_of_it.at_end(("t", 0))
