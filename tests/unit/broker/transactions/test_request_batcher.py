"""One batch at a time is in flight, and the next takes all that gathers. What is put together
equals what the codec encodes."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.cluster.peers import Then
from barnabas.broker.handlers.write_txn_markers import _results
from barnabas.broker.transactions import marker_channel, verification_request
from barnabas.broker.transactions.request_batcher import ACCEPTED, Frames, RequestBatcher
from barnabas.broker.transactions.verification_request import VerificationRequest
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.codec import encode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import add_partitions_to_txn, write_txn_markers
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.steps import at_once
from barnabas.protocol.topic_partition import TopicPartition
from tests.unit.broker.transactions.fake_peer import turns


class Queue:
    def __init__(self) -> None:
        self.waiting: list[int] = []
        self.sent: list[tuple[list[int], Then]] = []
        self.answered: list[tuple[list[int], Any]] = []
        self.batcher = RequestBatcher(self._take, self._send, self._handle)

    def put(self, *items: int) -> None:
        for item in items:
            self.waiting.append(item)
            self.batcher.notify()

    def answer(self, answer: Any) -> None:
        self.sent[-1][1](answer)

    def _take(self) -> list[int] | None:
        taken, self.waiting = self.waiting, []
        return taken or None

    def _send(self, batch: list[int], then: Then) -> None:
        if 0 in batch:
            raise KeyError("cannot be sent")
        self.sent.append((batch, then))

    def _handle(self, batch: list[int], answer: Any) -> None:
        self.answered.append((batch, answer))
        if answer == "fault":
            raise KeyError("answer")


async def test_requests_of_one_iteration_are_sent_together() -> None:
    queue = Queue()
    queue.put(1, 2)
    queue.put(3)
    assert not queue.sent
    await turns()
    assert [batch for batch, _ in queue.sent] == [[1, 2, 3]]
    queue.put(4)
    await turns()
    assert len(queue.sent) == 1


async def test_next_batch_follows_the_answer_at_once() -> None:
    queue = Queue()
    queue.put(1)
    await turns()
    queue.put(2, 3)
    await turns()
    assert len(queue.sent) == 1
    queue.answer("yes")
    assert [batch for batch, _ in queue.sent] == [[1], [2, 3]]
    queue.answer(None)
    assert queue.answered == [([1], "yes"), ([2, 3], None)]
    queue.put(4)
    await turns()
    assert [batch for batch, _ in queue.sent][2:] == [[4]]


async def test_fault_of_one_batch_does_not_stop_later_ones() -> None:
    queue = Queue()
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    queue.put(0)
    await turns()
    queue.put(1)
    await turns()
    queue.put(2)
    with pytest.raises(KeyError):
        queue.answer("fault")
    assert [batch for batch, _ in queue.sent] == [[1], [2]]


PARTITIONS = [TopicPartition(*each) for each in (("t", 0), ("t", 1), ("a-long-name", 0))]
IDS, EPOCHS = st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1)
QUESTIONS = st.builds(
    VerificationRequest,
    st.text(max_size=12),
    st.builds(Producer, IDS, EPOCHS),
    st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=3, unique=True),
    st.booleans(),
    st.none() | st.just("User:a"),
)
MARKERS = st.tuples(
    st.sampled_from(PARTITIONS),
    st.builds(TxnMarker, IDS, EPOCHS, st.integers(0, 1), st.booleans(), st.sampled_from([0, 2])),
)


def require_equal(frames: Frames, request: Any, accepted: Any, refused: Any, error: str) -> None:
    version = frames.form.version
    assert frames.request == encode(request, version)
    assert frames.accepted == encode(accepted, version)
    assert frames.decode(b"head" + frames.accepted, 4) is ACCEPTED
    setattr(refused, error, 120)
    assert frames.decode(encode(accepted, version), 0) == accepted


@settings(max_examples=200)
@given(
    st.lists(QUESTIONS, min_size=1, max_size=4).flatmap(
        lambda some: st.sampled_from([some, some * 150])
    )
)
def test_questions_put_together_equal_encoded_ones(questions: list[VerificationRequest]) -> None:
    framing, api = verification_request.framing(), add_partitions_to_txn.API
    request = api.request(transactions=[each.question() for each in questions])
    for _ in range(2):
        results: list[Any] = [each.accepted() for each in questions]
        refused = results[0].topic_results[0].results_by_partition[0]
        answer = api.response(results_by_transaction=results)
        require_equal(framing.of(questions), request, answer, refused, "partition_error_code")


@settings(max_examples=100)
@given(st.lists(MARKERS, min_size=1, max_size=5))
def test_markers_put_together_equal_encoded_ones(
    markers: list[tuple[TopicPartition, TxnMarker]],
) -> None:
    module = write_txn_markers
    asked = [
        module.WritableTxnMarker(
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            transaction_result=each.committed,
            topics=[module.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
            coordinator_epoch=each.coordinator_epoch,
            transaction_version=each.transaction_version,
        )
        for (topic, index), each in markers
    ]
    request = module.WriteTxnMarkersRequest(markers=asked)
    answer: Any = at_once(_results(request, ErrorCode.NONE))
    refused = answer.markers[-1].topics[0].partitions[0]
    require_equal(marker_channel.framing().of(markers), request, answer, refused, "error_code")
