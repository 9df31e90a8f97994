"""InitProducerId with two-phase commit (KIP-939), unstable in Apache Kafka 4.4."""

from typing import Any

from barnabas.protocol.messages.init_producer_id import API, InitProducerIdRequest
from tests.referee import given
from tests.referee.scenario import LEVELS, Peer, Scenarios
from tests.referee.scenarios.init_producer_id_transactional import MAX_TIMEOUT_MS, init, unknown
from tests.referee.transactions import Producer, is_no_longer_concurrent, producer, worn

scenario = Scenarios(API, LEVELS[-1:])

COMPLETED = ("CompleteCommit", "CompleteAbort")
TWO_PHASE = 6
"""The first version with two-phase commit."""


def two_phase(x: Producer, **options: Any) -> InitProducerIdRequest:
    return init(x, enable_two_phase_commit=True, **options)


@scenario(since=TWO_PHASE)
def two_phase_commit_takes_any_timeout(s: Peer) -> None:
    x = producer(s)
    for timeout_ms in (1, 60_000, MAX_TIMEOUT_MS + 1, 2**31 - 1, 0, -1):
        x.ask(two_phase(x, transaction_timeout_ms=timeout_ms))
        s.ask(x.describe())


@scenario(since=TWO_PHASE)
def two_phase_commit_of_a_new_transactional_id(s: Peer) -> None:
    x = unknown(s)
    x.ask(two_phase(x), until=is_no_longer_concurrent)
    s.ask(x.describe())


@scenario(since=TWO_PHASE)
def two_phase_commit_without_a_transactional_id(s: Peer) -> None:
    x = unknown(s)
    s.ask(two_phase(x, transactional_id=""))
    s.ask(two_phase(x, transactional_id=None))
    s.ask(init(x, transactional_id=None, keep_prepared_txn=True))


@scenario(since=TWO_PHASE)
def a_two_phase_transaction_commits(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.ask(two_phase(x))
    x.write(to, b"a").ends()
    x.aftermath(to)
    x.write(to, b"b").ends(committed=False)
    x.aftermath(to)


@scenario(since=TWO_PHASE)
def a_two_phase_transaction_does_not_time_out(s: Peer) -> None:
    to, x, y = given.topic(s), producer(s), producer(s, "y")
    x.ask(two_phase(x, transaction_timeout_ms=1))
    x.write(to, b"a")
    y.ask(y.init(1))
    y.write(to, b"b")
    s.ask(y.describe(), until=lambda r: r.transaction_states[0].transaction_state in COMPLETED)
    y.wait_until_ended()
    s.ask(x.describe())
    x.ends()
    x.aftermath(to)


@scenario(since=TWO_PHASE)
def a_two_phase_transaction_is_aborted_by_the_next_init(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.ask(two_phase(x))
    x.write(to, b"a")
    s.ask(two_phase(x))
    x.ask(two_phase(x), until=is_no_longer_concurrent)
    x.write(to, b"b")
    s.ask(x.init())
    x.ask(x.init(), until=is_no_longer_concurrent)
    x.aftermath(to)


@scenario(since=TWO_PHASE)
def two_phase_commit_resumes(s: Peer) -> None:
    x = producer(s)
    lost = two_phase(x, producer_id=x.id, producer_epoch=x.epoch)
    s.ask(lost)
    s.ask(lost)
    s.ask(two_phase(x, producer_id=x.id + 5_000_000, producer_epoch=0))
    s.ask(x.describe())


@scenario(since=TWO_PHASE)
def an_open_transaction_is_kept(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to, b"a")
    s.ask(init(x, keep_prepared_txn=True))
    s.ask(two_phase(x, keep_prepared_txn=True))
    s.ask(x.describe())


@scenario(since=TWO_PHASE)
def two_phase_commit_while_a_commit_is_under_way(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).freeze(to)
    s.ask(two_phase(x))
    s.ask(two_phase(x, transactional_id=s.name("other"), transaction_timeout_ms=-1))
    s.ask(x.describe())


@scenario(since=TWO_PHASE, worn=True)
def worn_and_two_phase_commit(s: Peer) -> None:
    to, x = given.topic(s), worn(s)
    before = x.id
    x.ask(two_phase(x))
    x.write(to, b"a").ends()
    assert x.id != before
    x.write(to, b"b").ends()
    x.aftermath(to)
