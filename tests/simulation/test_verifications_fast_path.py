"""The fast path of AddPartitionsToTxn between brokers: a broker with it and one without give the
same answers, and have the same logs and transactions."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.fast_paths.entries import FEW, EntriesFastPath
from barnabas.broker.fast_paths.verifications import ALTERNATIVES, VerificationsFastPath
from barnabas.broker.transactions.marker_frames import ACCEPTED
from barnabas.broker.transactions.marker_sender import MarkerSender
from barnabas.broker.transactions.verification_frames import VerificationFrames, request_of
from barnabas.broker.transactions.verification_request import VerificationRequest
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
from tests.simulation.fast_paths.twins import Twins, twins
from tests.support.mutants import Mutant, require_found

API, VERSION = add_partitions_to_txn.API, 5
BEFORE = encode_request_header(API.key, VERSION, 7, "broker-1")
IDS = ("x", "another id")
_PRODUCER = Struct(">qh")
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Rig:
    """Two brokers with producers in transactions, and questions of leaders."""

    def __init__(self, pair: Twins) -> None:
        self.twins = pair
        self.served = 0
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

    def begin(self, transactional_id: str, *partitions: TopicPartition) -> None:
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
        )
        self.twins.ask(add_partitions_to_txn, request, 3)

    def end(self, transactional_id: str) -> None:
        producer_id, epoch = self.producers[transactional_id]
        request = end_txn.EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=True,
        )
        self.twins.ask(end_txn, request, 3)

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


@contextmanager
def running() -> Iterator[Rig]:
    serve = VerificationsFastPath.serve
    rigs: list[Rig] = []

    def counted(path: VerificationsFastPath, frame: memoryview, received_ms: int) -> Any:
        parts = serve(path, frame, received_ms)
        rigs[0].served += parts is not None
        return parts

    with patch.object(VerificationsFastPath, "serve", counted), twins() as pair:
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


def test_transaction_that_waits_for_markers_is_refused() -> None:
    with known() as rig, patch.object(MarkerSender, "_send_due"):
        rig.end("x")
        assert not rig.ask(rig.question("x", T0))


def test_partition_that_is_being_dropped_is_refused() -> None:
    with known() as rig:
        for side in rig.twins.sides:
            table = next(side.broker._coordination.transactions.coordinator._runtime.served())[1]
            txn = table.transactions["x"]
            table.pending["x"] = txn.__class__(
                **{**_fields(txn), "partitions": frozenset([TopicPartition("u", 0)])}
            )
        assert not rig.ask(rig.question("x", T0))
        for side in rig.twins.sides:
            table = next(side.broker._coordination.transactions.coordinator._runtime.served())[1]
            del table.pending["x"]


def _fields(txn: Any) -> dict[str, Any]:
    if hasattr(txn, "_asdict"):
        return dict(txn._asdict())
    return {name: getattr(txn, name) for name in txn.__dataclass_fields__}


def test_added_partitions_are_added_by_the_fast_path() -> None:
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


def test_older_version_and_refused_questions_are_not_remembered() -> None:
    with running() as rig:
        rig.begin("x", T0)
        for _ in range(2):
            assert not rig.ask(rig.question("x", T1))
        before = encode_request_header(API.key, 4, 7, "broker-1")
        for _ in range(2):
            assert not rig.send(before + encode(request_of([rig.question("x", T0)]), 4))


def test_questions_above_the_limits_are_left_to_the_handler() -> None:
    with known() as rig:
        many = [rig.question("x", T0)] * FEW
        assert rig.ask(*many)
        assert not rig.ask(*many, many[0])


def test_changed_rules_are_noticed() -> None:
    context = SimpleNamespace(asker=None)
    path = VerificationsFastPath(
        SimpleNamespace(
            cache=SimpleNamespace(partition=lambda *_: 1),
            transactions=SimpleNamespace(verify_at_once=lambda _: True),
        ),  # type: ignore[arg-type]
        VERSION,
    )
    asker = SimpleNamespace(rules=object(), standing=lambda: asker.rules)
    context.asker = asker
    request = request_of([VerificationRequest("x", Producer(1, 0), [T0], False)])
    data = memoryview(BEFORE + encode(request, VERSION))
    answer = add_partitions_to_txn.AddPartitionsToTxnResponse()
    path.learn(data, request, context, answer)  # type: ignore[arg-type]
    assert path.serve(data, 0) is not None
    asker.rules = object()
    assert path.serve(data, 0) is None
    asker.rules = None
    path.learn(data, request, context, answer)  # type: ignore[arg-type]
    assert path.serve(data, 0) is None


def test_few_questions_about_an_id_are_remembered() -> None:
    with running() as rig:
        wanted = [(T0,), (T1,), (U0,), (T0, T1), (T0, U0)]
        rig.begin("x", T0, T1, U0)
        for each in wanted:
            assert not rig.ask(rig.question("x", *each))
        assert len(wanted) == ALTERNATIVES + 1
        for each in wanted[1:]:
            assert rig.ask(rig.question("x", *each))
        assert not rig.ask(rig.question("x", *wanted[0]))


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
    )
)
def test_requests_put_together_equal_encoded_ones(questions: Any) -> None:
    made = VerificationFrames()
    for _ in range(2):
        frames = made.of(questions)
        assert frames is not None
        assert frames.request == encode(request_of(questions), VERSION)
    assert frames is not None
    answer = decode(API.response, VERSION, frames.accepted)
    assert [each.transactional_id for each in answer.results_by_transaction] == [
        each.transactional_id for each in questions
    ]
    assert frames.decode(b"1234" + frames.accepted, 4) is ACCEPTED
    answer.results_by_transaction[0].topic_results[0].results_by_partition[
        0
    ].partition_error_code = 120
    assert frames.decode(encode(answer, VERSION), 0) == answer


def test_long_transactional_id_is_encoded() -> None:
    question = VerificationRequest(100 * "x", Producer(1, 0), [T0], adds=False)
    assert VerificationFrames().of([question]) is None


BEGIN = EntriesFastPath._begin
SERVE, LEARN = VerificationsFastPath.serve, VerificationsFastPath.learn
ANSWERS, FIND = VerificationsFastPath._answers, VerificationsFastPath._question
ODD, RULES = "test_odd_bytes_are_left_to_the_handler", "test_changed_rules_are_noticed"
UNKNOWN = "test_unknown_questions_are_left_to_the_handler"
FENCED = "test_fenced_producer_and_ended_transaction_are_refused"
ADDED = "test_added_partitions_are_added_by_the_fast_path"
OLDER = "test_older_version_and_refused_questions_are_not_remembered"
MUTANTS = (
    Mutant(BEGIN, " or not data.startswith(self._head, CONTENT_AT)", "", ODD),
    Mutant(BEGIN, "asker.standing() is not self._standing", "False", RULES),
    Mutant(BEGIN, "self._standing is None or ", "", RULES),
    Mutant(
        BEGIN, "<= FEW + 1", "<= 100", "test_questions_above_the_limits_are_left_to_the_handler"
    ),
    Mutant(SERVE, "data[pos:] != NO_TAGS or ", "", ODD),
    Mutant(SERVE, " or not self._answers(asked)", "", FENCED),
    Mutant(FIND, "data.startswith(known[0], pos)", "True", UNKNOWN),
    Mutant(ANSWERS, "if len(asked) > 1:", "if False:", ADDED),
    Mutant(ANSWERS, "any(known.adds for known, _ in asked)", "False", ADDED),
    Mutant(ANSWERS, "partition_of(topic, index) is None", "False", "test_deleted_topic_is_noticed"),
    Mutant(LEARN, "self._version != VERSION or ", "", OLDER),
    Mutant(
        rules.verifies,
        "txn.state is TransactionState.ONGOING\n        and ",
        "",
        "test_transaction_that_waits_for_markers_is_refused",
    ),
    Mutant(
        rules.verifies,
        "and transactional_id not in table.pending",
        "",
        "test_partition_that_is_being_dropped_is_refused",
    ),
    Mutant(rules.verifies, "and txn.partitions.issuperset(partitions)", "", FENCED),
    Mutant(
        TransactionCoordinator.verify_at_once,
        "if not self._read(each.transactional_id, look):",
        "if not self._read(each.transactional_id, look) and False:",
        FENCED,
    ),
)


@pytest.fixture(scope="module", autouse=True)
def completions_at_once() -> Iterator[None]:
    """Postpone no completion: a broker without fast paths never does, and the logs are compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postponed, "DELAY_MS", 0)
        yield


@pytest.fixture(scope="module", autouse=True)
def garbage_of_broken_brokers() -> Iterator[None]:
    """Collect here what a test left that broke off."""
    yield
    gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_missing_check_is_found(mutant: Mutant) -> None:
    require_found(mutant, globals())
