"""AddPartitionsToTxn and EndTxn that repeat: a broker that remembers them and one that does not
have the same answers, logs and transactions."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.handlers import add_partitions_to_txn as handler
from barnabas.broker.handlers import end_txn as ending
from barnabas.broker.transactions import marker_sender
from barnabas.broker.transactions.marker_sender import MarkerSender
from barnabas.broker.transactions.request_batcher import ACCEPTED
from barnabas.broker.transactions.verification_request import (
    VERSION,
    VerificationRequest,
    framing,
)
from barnabas.coordinator.transaction import partitions as rules
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.metadata import Producer as Identity
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.header import encode_request_header
from barnabas.protocol.messages import add_partitions_to_txn as asking
from barnabas.protocol.messages import describe_transactions, end_txn
from barnabas.protocol.topic_partition import TopicPartition
from tests.simulation.repeats.produce import Producer
from tests.simulation.repeats.twins import Twins, twins
from tests.support.mutants import finds, hunt

API = asking.API
BEFORE = encode_request_header(API.key, VERSION, 7, "broker-1")
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Rig:
    """Two brokers with producers of the older protocol, and questions of leaders."""

    def __init__(self, pair: Twins) -> None:
        self.twins = pair
        pair.create("t", 2)
        pair.create("u", 1)
        self.x, self.other = self.producers = Producer(pair, "x"), Producer(pair, "another id")

    @property
    def of_clients(self) -> int:
        """The requests of clients that were answered from memory."""
        return self.twins.hits_of(end_txn) + self.twins.hits_of(asking, versions=range(4))

    def question(
        self,
        producer: Producer | None,
        *partitions: TopicPartition,
        adds: bool = False,
        epoch: int = 0,
        principal: str | None = None,
    ) -> VerificationRequest:
        """Return a leader's question about a producer; None is one that is unknown."""
        if producer is None:
            return VerificationRequest("stranger", Identity(5, epoch), partitions, adds, principal)
        known = Identity(producer.producer_id, producer.epoch + epoch)
        key = producer.transactional_id or ""
        return VerificationRequest(key, known, partitions, adds, principal)

    def ask(self, *questions: VerificationRequest) -> bool:
        """Send questions; return whether memory has answered."""
        return self.send(BEFORE + encode(request_of(questions), VERSION))

    def send(self, data: bytes) -> bool:
        before = self.twins.hits_of(asking, versions=range(4, 6))
        self.twins.exchange(data)
        self.twins.state()
        ids = [each.transactional_id for each in self.producers]
        described = describe_transactions.DescribeTransactionsRequest(transactional_ids=ids)
        self.twins.ask(describe_transactions, described)
        return self.twins.hits_of(asking, versions=range(4, 6)) > before

    def entries(self) -> list[Any]:
        """Return what both coordinators know of `x`."""
        found = [side.broker._coordination.transactions.coordinator for side in self.twins.sides]
        return [next(each._runtime.served())[1].ids["x"] for each in found]


def request_of(questions: Any) -> Any:
    return API.request(transactions=[each.question() for each in questions])


@contextmanager
def running() -> Iterator[Rig]:
    with twins() as pair:
        yield Rig(pair)


@contextmanager
def known() -> Iterator[Rig]:
    """Brokers on which both producers are in a transaction, as a leader knows."""
    with running() as rig:
        for producer in rig.producers:
            producer.add(T0, U0)
            rig.ask(rig.question(producer, T0))
        yield rig


def test_known_questions_are_answered() -> None:
    with known() as rig:
        assert rig.ask(rig.question(rig.x, T0))
        assert rig.ask(rig.question(rig.x, T0), rig.question(rig.other, T0))
        rig.x.end()
        rig.x.add(T0)
        assert rig.ask(rig.question(rig.x, T0))


def test_unknown_questions_are_left_to_the_handler() -> None:
    with known() as rig:
        assert not rig.ask(rig.question(rig.x, T1))
        assert not rig.ask(rig.question(None, T0))
        assert not rig.ask(rig.question(rig.x, T0, principal="User:a"))
        assert not rig.ask(rig.question(rig.x, T0, adds=True))
        assert not rig.ask(rig.question(rig.x, T0, U0))
        assert rig.ask(rig.question(rig.x, T0, U0))
        assert rig.ask(rig.question(rig.x, T0))


@finds(rules.verifies, "and txn.partitions.issuperset(partitions)")
@finds(TransactionCoordinator.verify_at_once, "request=each)):", "request=each)) and False:")
def test_fenced_producer_and_ended_transaction_are_refused() -> None:
    with known() as rig:
        assert not rig.ask(rig.question(rig.x, T0, epoch=1))
        assert not rig.ask(rig.question(rig.other, T0), rig.question(rig.x, T0, epoch=1))
        rig.x.end()
        assert not rig.ask(rig.question(rig.x, T0))
        rig.x.add(U0)
        assert not rig.ask(rig.question(rig.x, T0))
        assert not rig.ask(rig.question(rig.other, T0), rig.question(rig.x, T0))
        rig.x.init()
        rig.x.add(T0)
        assert not rig.ask(rig.question(rig.x, T0, epoch=-1))
        assert rig.ask(rig.question(rig.x, T0))


@finds(rules.verifies, "txn.state is TransactionState.ONGOING and")
def test_transaction_that_waits_for_markers_is_refused() -> None:
    with (
        known() as rig,
        patch.object(marker_sender, "AT_ONCE", 0),
        patch.object(MarkerSender, "_send_due"),
    ):
        rig.x.end()
        assert not rig.ask(rig.question(rig.x, T0))


@finds(rules.verifies, "and entry.pending is None")
def test_partition_that_is_being_dropped_is_refused() -> None:
    with known() as rig:
        for entry in rig.entries():
            entry.pending = entry.txn._replace(partitions=frozenset([U0]))
        assert not rig.ask(rig.question(rig.x, T0))
        for entry in rig.entries():
            entry.pending = None


@finds(handler._verify_again, "elif len(asked) > 1:", "elif False:")
def test_added_partitions_are_added_again() -> None:
    with known() as rig:
        rig.x.end()
        assert not rig.ask(rig.question(rig.x, T0, T1, adds=True))
        rig.x.end()
        assert rig.ask(rig.question(rig.x, T0, T1, adds=True))
        rig.x.end()
        both = rig.question(rig.x, T0, T1, adds=True), rig.question(rig.other, T0)
        assert not rig.ask(*both)
        assert not rig.ask(*reversed(both))
        assert not rig.ask(rig.question(rig.x, T0, T1, adds=True, epoch=-1))


@finds(handler._verify_again, "if not _are_known(parts.cache, question.partitions):", "if False:")
def test_deleted_topic_is_noticed() -> None:
    with known() as rig:
        rig.twins.delete("t")
        rig.twins.wait(5)
        assert not rig.ask(rig.question(rig.x, T0))


def test_odd_bytes_are_left_to_the_handler() -> None:
    with known() as rig:
        content = encode(request_of([rig.question(rig.x, T0)]), VERSION)
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
        rig.x.add(T0)
        for _ in range(2):
            assert not rig.ask(rig.question(rig.x, T1))
        rig.x.add(T1)
        assert not rig.ask(rig.question(rig.x, T1))
        assert rig.ask(rig.question(rig.x, T1))
        before = encode_request_header(API.key, 4, 7, "broker-1")
        for _ in range(2):
            assert not rig.send(before + encode(request_of([rig.question(rig.x, T0)]), 4))


def test_transactions_of_a_client_repeat() -> None:
    with running() as rig:
        for fast in (0, 2, 2):
            before = rig.of_clients
            rig.x.add(T0, T1)
            rig.x.end()
            assert rig.of_clients == before + fast


def test_transactions_of_the_newer_protocol_repeat() -> None:
    with running() as rig:
        rig.x.version = 12
        for number in range(4):
            rig.ask(rig.question(rig.x, T0, adds=True))
            assert rig.x.end(commit=number % 2 == 0) == 0
            assert rig.of_clients == number
        # The answer to a request that the client sends again, and a producer that is fenced.
        epoch = rig.x.epoch
        rig.x.epoch -= 1
        assert rig.x.end(commit=False) == 0
        assert rig.x.epoch == epoch
        rig.x.epoch -= 2
        assert rig.x.end() != 0


@finds(handler.again, "or _any_refused(response.results_by_topic_v3_and_below)")
def test_refused_requests_of_a_client_are_not_remembered() -> None:
    with running() as rig:
        for _ in range(2):
            rig.x.add(T0, TopicPartition("v", 0))
            rig.x.end()
        rig.twins.create("v", 1)
        rig.x.add(T0, TopicPartition("v", 0))
        rig.x.end()
        assert not rig.of_clients


@finds(handler._add_again, "if not _are_known(cache, added.partitions):", "if False:")
def test_partition_of_a_client_that_was_deleted_is_refused() -> None:
    with running() as rig:
        rig.x.add(U0)
        rig.x.end()
        rig.twins.delete("u")
        rig.twins.wait(5)
        rig.x.add(U0)
        assert not rig.of_clients


@finds(handler.again, "request.group_id is not None or ")
def test_partition_of_a_group_is_not_remembered() -> None:
    with running() as rig:
        for _ in range(3):
            rig.x.add(T0, group_id="g")
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
    request = end_txn.EndTxnRequest(
        transactional_id="x", producer_id=1, producer_epoch=0, committed=True, written=written
    )
    context: Any = SimpleNamespace(api_version=version, connection_id=1, owner=None)
    coordinator: Any = Mock()
    found = ending.again(coordinator, request, context, end_txn.EndTxnResponse(error_code=code))
    assert (found is not None) is repeats


PRODUCERS = st.integers(0, 1)
QUESTIONS = st.tuples(
    PRODUCERS | st.just(2),
    st.lists(st.sampled_from([T0, T1, U0, TopicPartition("v", 0)]), min_size=1, max_size=2),
    st.booleans(),
    st.sampled_from([0, 0, 0, 1]),
)
STEPS = st.one_of(st.lists(QUESTIONS, min_size=1, max_size=3), st.tuples(st.booleans(), PRODUCERS))


@settings(max_examples=25, deadline=None)
@given(st.lists(STEPS, max_size=15))
def test_random_questions_have_the_same_answers_and_effects(steps: Any) -> None:
    with known() as rig:
        asked = [*rig.producers, None]
        for step in steps:
            if isinstance(step, list):
                rig.ask(
                    *(
                        rig.question(asked[who], *places, adds=adds, epoch=epoch)
                        for who, places, adds, epoch in step
                    )
                )
            elif step[0]:
                rig.producers[step[1]].add(T0, T1)
            else:
                rig.producers[step[1]].end()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.builds(
            VerificationRequest,
            st.text(max_size=12),
            st.builds(Identity, st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1)),
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


test_missing_check_is_found = hunt(globals())
