"""AddPartitionsToTxn and EndTxn that repeat: a broker that remembers them and one that does not
have the same answers, logs and transactions."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock, patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.handlers import add_partitions_to_txn as handler
from barnabas.broker.handlers import end_txn as ending
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.repeats import Repeats
from barnabas.broker.transactions import marker_sender
from barnabas.broker.transactions.marker_sender import MarkerSender
from barnabas.broker.transactions.request_batcher import ACCEPTED
from barnabas.broker.transactions.verification_request import (
    VERSION,
    VerificationRequest,
    framing,
)
from barnabas.coordinator import postponed
from barnabas.coordinator.transaction import partitions as rules
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.metadata import Producer
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.header import encode_request_header
from barnabas.protocol.messages import (
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    find_coordinator,
    init_producer_id,
)
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.security.principal import ANONYMOUS
from tests.simulation.repeats.twins import Twins, twins
from tests.support.mutants import finds, hunt

API = add_partitions_to_txn.API
BEFORE = encode_request_header(API.key, VERSION, 7, "broker-1")
IDS = ("x", "another id")
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Rig:
    """Two brokers with producers in transactions, and questions of leaders."""

    def __init__(self, pair: Twins) -> None:
        self.twins = pair
        self.served = 0
        """The questions of leaders that were answered from memory."""
        self.of_clients = 0
        self.producers: dict[str, Producer] = {}
        pair.create("t", 2)
        pair.create("u", 1)
        for transactional_id in IDS:
            self.init(transactional_id)

    def init(self, transactional_id: str) -> None:
        ask = self.twins.ask
        asked = find_coordinator.FindCoordinatorRequest(
            coordinator_keys=[transactional_id], key_type=1
        )
        ask(find_coordinator, asked)
        self.twins.wait(3)
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        answer = ask(init_producer_id, request, 4)
        assert not answer.error_code
        self.producers[transactional_id] = Producer(answer.producer_id, answer.producer_epoch)

    def begin(
        self, transactional_id: str, *partitions: TopicPartition, group_id: str | None = None
    ) -> None:
        producer_id, epoch = self.producers[transactional_id]
        topics = [
            add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=[index])
            for topic, index in partitions
        ]
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
            group_id=group_id,
        )
        self.twins.ask(add_partitions_to_txn, request, 3)

    def end(self, transactional_id: str, version: int = 3, *, commit: bool = True) -> int:
        producer_id, epoch = self.producers[transactional_id]
        request = end_txn.EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commit,
        )
        answer = self.twins.ask(end_txn, request, version)
        if version >= 5 and not answer.error_code:
            producer = Producer(answer.producer_id, answer.producer_epoch)
            self.producers[transactional_id] = producer
        error: int = answer.error_code
        return error

    def question(
        self,
        transactional_id: str,
        *partitions: TopicPartition,
        adds: bool = False,
        epoch: int = 0,
        principal: str | None = None,
    ) -> VerificationRequest:
        producer_id, current = self.producers.get(transactional_id, (5, 0))
        producer = Producer(producer_id, current + epoch)
        return VerificationRequest(transactional_id, producer, partitions, adds, principal)

    def ask(self, *questions: VerificationRequest) -> bool:
        """Send questions; return whether the fast path has answered."""
        return self.send(BEFORE + encode(request_of(questions), VERSION))

    def send(self, data: bytes) -> bool:
        before = self.served
        self.twins.exchange(data)
        self.twins.state()
        described = describe_transactions.DescribeTransactionsRequest(transactional_ids=list(IDS))
        self.twins.ask(describe_transactions, described)
        return self.served > before


def request_of(questions: Any) -> Any:
    return API.request(transactions=[each.question() for each in questions])


@contextmanager
def running() -> Iterator[Rig]:
    serve = Repeats.serve
    rigs: list[Rig] = []

    def counted(repeats: Repeats, frame: memoryview, now_ms: int) -> Any:
        parts = serve(repeats, frame, now_ms)
        if parts is not None and rigs:
            asks = repeats._api is API and repeats._version > 3
            rigs[0].served += asks
            rigs[0].of_clients += not asks and repeats._api in (API, end_txn.API)
        return parts

    with patch.object(Repeats, "serve", counted), twins() as pair:
        rigs.append(Rig(pair))
        yield rigs[0]


@contextmanager
def known() -> Iterator[Rig]:
    """Brokers on which both producers are in a transaction, as a leader knows."""
    with running() as rig:
        for transactional_id in IDS:
            rig.begin(transactional_id, T0, U0)
            rig.ask(rig.question(transactional_id, T0))
        yield rig


def test_known_questions_are_answered() -> None:
    with known() as rig:
        assert rig.ask(rig.question("x", T0))
        assert rig.ask(rig.question("x", T0), rig.question("another id", T0))
        rig.end("x")
        rig.begin("x", T0)
        assert rig.ask(rig.question("x", T0))


def test_unknown_questions_are_left_to_the_handler() -> None:
    with known() as rig:
        assert not rig.ask(rig.question("x", T1))
        assert not rig.ask(rig.question("stranger", T0))
        assert not rig.ask(rig.question("x", T0, principal="User:a"))
        assert not rig.ask(rig.question("x", T0, adds=True))
        assert not rig.ask(rig.question("x", T0, U0))
        assert rig.ask(rig.question("x", T0, U0))
        assert rig.ask(rig.question("x", T0))


@finds(rules.verifies, "and txn.partitions.issuperset(partitions)")
@finds(
    TransactionCoordinator.verify_at_once,
    "if not self._runtime.read(index, partial(partitions.verifies, request=each)):",
    "if not self._runtime.read(index, partial(partitions.verifies, request=each)) and False:",
)
def test_fenced_producer_and_ended_transaction_are_refused() -> None:
    with known() as rig:
        assert not rig.ask(rig.question("x", T0, epoch=1))
        assert not rig.ask(rig.question("another id", T0), rig.question("x", T0, epoch=1))
        rig.end("x")
        assert not rig.ask(rig.question("x", T0))
        rig.begin("x", U0)
        assert not rig.ask(rig.question("x", T0))
        assert not rig.ask(rig.question("another id", T0), rig.question("x", T0))
        rig.init("x")
        rig.begin("x", T0)
        assert not rig.ask(rig.question("x", T0, epoch=-1))
        assert rig.ask(rig.question("x", T0))


@finds(rules.verifies, "txn.state is TransactionState.ONGOING and")
def test_transaction_that_waits_for_markers_is_refused() -> None:
    with (
        known() as rig,
        patch.object(marker_sender, "AT_ONCE", 0),
        patch.object(MarkerSender, "_send_due"),
    ):
        rig.end("x")
        assert not rig.ask(rig.question("x", T0))


@finds(rules.verifies, "and entry.pending is None")
def test_partition_that_is_being_dropped_is_refused() -> None:
    with known() as rig:
        for side in rig.twins.sides:
            table = next(side.broker._coordination.transactions.coordinator._runtime.served())[1]
            entry = table.ids["x"]
            assert entry.txn is not None
            entry.pending = entry.txn._replace(partitions=frozenset([TopicPartition("u", 0)]))
        assert not rig.ask(rig.question("x", T0))
        for side in rig.twins.sides:
            table = next(side.broker._coordination.transactions.coordinator._runtime.served())[1]
            table.ids["x"].pending = None


@finds(handler._verify_again, "elif len(asked) > 1:", "elif False:")
def test_added_partitions_are_added_again() -> None:
    with known() as rig:
        rig.end("x")
        assert not rig.ask(rig.question("x", T0, T1, adds=True))
        rig.end("x")
        assert rig.ask(rig.question("x", T0, T1, adds=True))
        rig.end("x")
        both = rig.question("x", T0, T1, adds=True), rig.question("another id", T0)
        assert not rig.ask(*both)
        assert not rig.ask(*reversed(both))
        assert not rig.ask(rig.question("x", T0, T1, adds=True, epoch=-1))


@finds(handler._verify_again, "if not _are_known(parts.cache, question.partitions):", "if False:")
def test_deleted_topic_is_noticed() -> None:
    with known() as rig:
        rig.twins.delete("t")
        rig.twins.wait(5)
        assert not rig.ask(rig.question("x", T0))


def test_odd_bytes_are_left_to_the_handler() -> None:
    with known() as rig:
        content = encode(request_of([rig.question("x", T0)]), VERSION)
        assert rig.send(BEFORE + content)
        assert not rig.send(BEFORE + content + b"\0")
        assert not rig.send(encode_request_header(API.key, VERSION, 7, "broker-2") + content)
        assert rig.send(encode_request_header(API.key, VERSION, 7, "broker-2") + content)
        rig.send(BEFORE + content)
        for cut in range(len(content)):
            assert not rig.send(BEFORE + content[:cut])
            rig.send(BEFORE + content)


@finds(handler._verified_again, "version != VERIFICATIONS.version or ")
@finds(
    handler._verified_again,
    "or any(_any_refused(each.topic_results) for each in response.results_by_transaction)",
)
def test_older_version_and_refused_questions_are_not_remembered() -> None:
    with running() as rig:
        rig.begin("x", T0)
        for _ in range(2):
            assert not rig.ask(rig.question("x", T1))
        rig.begin("x", T1)
        assert not rig.ask(rig.question("x", T1))
        assert rig.ask(rig.question("x", T1))
        before = encode_request_header(API.key, 4, 7, "broker-1")
        for _ in range(2):
            assert not rig.send(before + encode(request_of([rig.question("x", T0)]), 4))


def test_transactions_of_a_client_repeat() -> None:
    with running() as rig:
        for fast in (0, 2, 2):
            before = rig.of_clients
            rig.begin("x", T0, T1)
            rig.end("x")
            assert rig.of_clients == before + fast


def test_transactions_of_the_newer_protocol_repeat() -> None:
    with running() as rig:
        for number in range(4):
            rig.ask(rig.question("x", T0, adds=True))
            assert rig.end("x", 5, commit=number % 2 == 0) == 0
            assert rig.of_clients == number
        producer, old = rig.producers["x"], rig.producers["x"]
        # The answer to a request that the client sends again, and a producer that is fenced.
        rig.producers["x"] = producer._replace(epoch=producer.epoch - 1)
        assert rig.end("x", 5, commit=False) == 0
        assert rig.producers["x"] == old
        rig.producers["x"] = producer._replace(epoch=producer.epoch - 2)
        assert rig.end("x", 5) != 0


@finds(handler.again, "or _any_refused(response.results_by_topic_v3_and_below)")
def test_refused_requests_of_a_client_are_not_remembered() -> None:
    with running() as rig:
        for _ in range(2):
            rig.begin("x", T0, TopicPartition("v", 0))
            rig.end("x")
        rig.twins.create("v", 1)
        rig.begin("x", T0, TopicPartition("v", 0))
        rig.end("x")
        assert not rig.of_clients


@finds(handler._add_again, "if not _are_known(cache, added.partitions):", "if False:")
def test_partition_of_a_client_that_was_deleted_is_refused() -> None:
    with running() as rig:
        rig.begin("x", U0)
        rig.end("x")
        rig.twins.delete("u")
        rig.twins.wait(5)
        rig.begin("x", U0)
        assert not rig.of_clients


@finds(handler.again, "request.group_id is not None or ")
def test_partition_of_a_group_is_not_remembered() -> None:
    with running() as rig:
        for _ in range(3):
            rig.begin("x", T0, group_id="g")
        assert not rig.of_clients


@finds(ending.again, " or request.written is not None", "", 4, 0, [], False)
@finds(ending.again, "response.error_code or ", "", 4, 47, None, False)
@pytest.mark.parametrize(
    ("version", "code", "written", "repeats"),
    [(4, 0, None, True), (5, 0, None, True), (4, 47, None, False), (4, 0, [], False)],
)
def test_end_of_which_the_answer_says_less_than_the_coordinator_is_not_remembered(
    version: int, code: int, written: Any, repeats: bool
) -> None:
    context = RequestContext(end_txn.API.key, version, 1, "c", ANONYMOUS, "PLAINTEXT", "host", 1, 0)
    request = end_txn.EndTxnRequest(
        transactional_id="x", producer_id=1, producer_epoch=0, committed=True, written=written
    )
    response = end_txn.EndTxnResponse(error_code=code)
    coordinator: Any = Mock()
    found = ending.again(coordinator, request, context, response)
    assert (found is not None) is repeats


QUESTIONS = st.tuples(
    st.sampled_from([*IDS, "stranger"]),
    st.lists(st.sampled_from([T0, T1, U0, TopicPartition("v", 0)]), min_size=1, max_size=2),
    st.booleans(),
    st.sampled_from([0, 0, 0, 1]),
)
STEPS = st.lists(
    st.one_of(
        st.lists(QUESTIONS, min_size=1, max_size=3),
        st.sampled_from([("begin", each) for each in IDS] + [("end", each) for each in IDS]),
    ),
    max_size=15,
)


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_random_questions_have_the_same_answers_and_effects(steps: Any) -> None:
    with known() as rig:
        for step in steps:
            if isinstance(step, tuple):
                if step[0] == "begin":
                    rig.begin(step[1], T0, T1)
                else:
                    rig.end(step[1])
            else:
                rig.ask(
                    *(
                        rig.question(key, *places, adds=adds, epoch=epoch)
                        for key, places, adds, epoch in step
                    )
                )


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.builds(
            VerificationRequest,
            st.text(max_size=12),
            st.builds(Producer, st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1)),
            st.lists(st.sampled_from([T0, T1, U0]), min_size=1, max_size=3, unique=True),
            st.booleans(),
            st.none() | st.just("User:a"),
        ),
        min_size=1,
        max_size=4,
    ).flatmap(lambda some: st.sampled_from([some, some * 150]))
)
def test_requests_put_together_equal_encoded_ones(questions: Any) -> None:
    sender = framing()
    for _ in range(2):
        frames = sender.of(questions)
        assert frames.request == encode(request_of(questions), VERSION)
    answer = decode(API.response, VERSION, frames.accepted)
    assert [each.transactional_id for each in answer.results_by_transaction] == [
        each.transactional_id for each in questions
    ]
    assert frames.decode(b"1234" + frames.accepted, 4) is ACCEPTED
    answer.results_by_transaction[0].topic_results[0].results_by_partition[
        0
    ].partition_error_code = 120
    assert frames.decode(encode(answer, VERSION), 0) == answer


@pytest.fixture(scope="module", autouse=True)
def completions_at_once() -> Iterator[None]:
    """Postpone no completion: a broker without fast paths never does, and the logs are compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postponed, "DELAY_MS", 0)
        yield


test_missing_check_is_found = hunt(globals())
