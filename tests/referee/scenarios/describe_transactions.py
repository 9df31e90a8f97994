"""DescribeTransactions: each visible state of a transactional id."""

from barnabas.protocol.messages.describe_transactions import API, DescribeTransactionsRequest
from tests.referee import given
from tests.referee.scenario import LEVELS, Peer, Scenarios
from tests.referee.transactions import producer, worn

scenario = Scenarios(API, LEVELS)


def of(*ids: str) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(transactional_ids=list(ids))


@scenario
def no_transactional_id(s: Peer) -> None:
    s.ask(of(s.name("unknown")))
    s.ask(of(""))
    s.ask(of())


@scenario
def a_producer_that_has_not_begun(s: Peer) -> None:
    s.ask(producer(s, timeout_ms=12_345).describe())


@scenario
def an_open_transaction(s: Peer) -> None:
    to, x = given.topic(s, partitions=3), producer(s)
    x.write(to).write(to, partition=2)
    s.ask(x.describe())


@scenario
def an_open_transaction_with_offsets(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).commit_offset(s.name("g"), to, 3)
    s.ask(x.describe())


@scenario
def a_commit_that_is_under_way(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).freeze(to)
    s.ask(x.describe())


@scenario
def an_abort_that_is_under_way(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).freeze(to, committed=False)
    s.ask(x.describe())


@scenario
def after_a_commit(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).finish()
    s.ask(x.describe())


@scenario
def after_an_abort(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).finish(committed=False)
    s.ask(x.describe())


@scenario
def after_the_timeout(s: Peer) -> None:
    to, x = given.topic(s), producer(s, timeout_ms=1)
    x.do(x.add(to))
    aborted = "CompleteAbort"
    s.ask(x.describe(), until=lambda r: r.transaction_states[0].transaction_state == aborted)


@scenario
def a_newer_producer(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to)
    producer(s, timeout_ms=30_000)
    s.ask(x.describe())


@scenario(worn=True)
def worn_epochs(s: Peer) -> None:
    to, x = given.topic(s), worn(s)
    for _ in range(3):
        x.write(to).finish()
        s.ask(x.describe())
    x.start()
    s.ask(x.describe())


@scenario
def several_and_an_unknown_one(s: Peer) -> None:
    to, x, y = given.topic(s), producer(s), producer(s, "y")
    x.write(to)
    s.ask(of(x.transactional_id, s.name("unknown"), y.transactional_id))


@scenario
def the_same_twice(s: Peer) -> None:
    x = producer(s)
    s.ask(of(x.transactional_id, x.transactional_id))
