"""AddPartitionsToTxn: by one client up to version 3; later between brokers, also to verify only."""

from collections.abc import Iterable
from typing import Any

from barnabas.protocol.messages.add_partitions_to_txn import (
    API,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.topic_partition import TopicPartition
from tests.referee import given
from tests.referee.given import Topic
from tests.referee.scenario import LEVELS, Peer, Scenarios
from tests.referee.transactions import CLIENTS_UNTIL, Producer, producer, worn

scenario = Scenarios(API, LEVELS)

BROKERS_SINCE = CLIENTS_UNTIL + 1


def topics(partitions: Iterable[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    named: dict[str, AddPartitionsToTxnTopic] = {}
    for name, partition in partitions:
        topic = named.setdefault(name, AddPartitionsToTxnTopic(name=name, partitions=[]))
        topic.partitions.append(partition)
    return list(named.values())


def part(
    x: Producer, *partitions: TopicPartition, verify_only: bool = False, **options: Any
) -> AddPartitionsToTxnTransaction:
    """Return the request of a broker about one transaction."""
    return AddPartitionsToTxnTransaction(
        **x.who(**options), verify_only=verify_only, topics=topics(partitions)
    )


def batched(*parts: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(transactions=list(parts))


def add(x: Producer, *partitions: TopicPartition, **options: Any) -> AddPartitionsToTxnRequest:
    """Return the request in the shape of the version under test."""
    if x.s.version >= BROKERS_SINCE:
        return batched(part(x, *partitions, **options))
    mine = {f"v3_and_below_{key}": value for key, value in x.who(**options).items()}
    return AddPartitionsToTxnRequest(**mine, v3_and_below_topics=topics(partitions))


def verify(x: Producer, *partitions: TopicPartition, **options: Any) -> AddPartitionsToTxnRequest:
    return batched(part(x, *partitions, verify_only=True, **options))


def of(to: Topic, partition: int = 0) -> TopicPartition:
    return TopicPartition(to.name, partition)


# -- both ----------------------------------------------------------------------------------------


@scenario
def one_partition(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    s.ask(add(x, of(to)))
    s.ask(x.describe())


@scenario
def several_topics_and_partitions(s: Peer) -> None:
    a, b, x = given.topic(s, "a", partitions=2), given.topic(s, "b"), producer(s)
    s.ask(add(x, of(a), of(a, 1), of(b)))
    s.ask(x.describe())
    x.ends()


@scenario
def one_that_is_there_already(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    s.ask(add(x, of(to)))
    s.ask(add(x, of(to)))
    s.ask(add(x, of(to), of(to)))
    s.ask(x.describe())


@scenario
def more_while_it_is_open(s: Peer) -> None:
    to, x = given.topic(s, partitions=3), producer(s)
    s.ask(add(x, of(to, 2)))
    x.write(to)
    s.ask(add(x, of(to), of(to, 1)))
    s.ask(x.describe())
    x.ends(committed=False)


@scenario
def none_at_all(s: Peer) -> None:
    x = producer(s)
    s.ask(add(x))
    s.ask(x.describe())


@scenario
def an_unknown_topic(s: Peer) -> None:
    x = producer(s)
    s.ask(add(x, (s.name("unknown"), 0)))
    s.ask(x.describe())


@scenario
def an_unknown_partition(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    s.ask(add(x, of(to, 1)))
    s.ask(add(x, of(to, -1)))
    s.ask(x.describe())


@scenario
def unknown_ones_among_others(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    s.ask(add(x, of(to), of(to, 7), (s.name("unknown"), 0)))
    s.ask(x.describe())


@scenario
def partitions_of_internal_topics(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    if s.version < BROKERS_SINCE:
        s.ask(add(x, ("__consumer_offsets", 0)))
        s.ask(add(x, of(to), ("__transaction_state", 0)))
    s.ask(x.describe())


@scenario
def names_that_no_topic_may_have(s: Peer) -> None:
    x = producer(s)
    s.ask(add(x, ("", 0)))
    s.ask(add(x, ("a/b", 0), ("..", 0)))


@scenario
def an_older_epoch(s: Peer) -> None:
    to, old = given.topic(s), producer(s)
    x = producer(s)
    s.ask(add(old, of(to)))
    s.ask(add(x, of(to)))
    s.ask(add(old, of(to)))
    s.ask(x.describe())


@scenario
def an_epoch_of_the_future(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    for epoch in (x.epoch + 1, 32_767, -1):
        s.ask(add(x, of(to), producer_epoch=epoch))
    s.ask(x.describe())


@scenario
def another_producer_id(s: Peer) -> None:
    to, x, y = given.topic(s), producer(s), producer(s, "y")
    s.ask(add(x, of(to), producer_id=y.id))
    s.ask(add(x, of(to), producer_id=-1))
    s.ask(x.describe())


@scenario
def an_unknown_transactional_id(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    s.ask(add(x, of(to), transactional_id=s.name("unknown")))
    s.ask(add(x, of(to), transactional_id=""))
    s.ask(add(x, (s.name("ghost"), 0), transactional_id=""))


@scenario
def after_a_commit(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).finish()
    s.ask(add(x, of(to)))
    s.ask(x.describe())
    x.ends()


@scenario
def after_an_abort(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).finish(committed=False)
    s.ask(add(x, of(to)))
    s.ask(x.describe())


@scenario
def after_a_commit_with_the_epoch_before(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    before = add(x, of(to))
    x.write(to).finish()
    s.ask(before)
    s.ask(x.describe())


@scenario
def while_a_commit_is_under_way(s: Peer) -> None:
    to, x = given.topic(s, partitions=2), producer(s)
    x.write(to).freeze(to)
    s.ask(add(x, of(to, 1)))
    s.ask(add(x, of(to), producer_epoch=x.epoch + 1))
    s.ask(add(x, of(to), producer_id=x.id + 5_000_000))
    s.ask(x.describe())


@scenario
def while_an_abort_is_under_way(s: Peer) -> None:
    to, x = given.topic(s, partitions=2), producer(s)
    x.write(to).freeze(to, committed=False)
    s.ask(add(x, of(to, 1)))
    s.ask(x.describe())


@scenario
def after_the_timeout(s: Peer) -> None:
    to, x = given.topic(s), producer(s, timeout_ms=1)
    x.do(x.add(to))
    s.do(x.describe(), until=lambda r: r.transaction_states[0].transaction_state == "CompleteAbort")
    s.ask(add(x, of(to)))
    s.ask(x.describe())


@scenario
def after_the_topic_was_deleted(s: Peer) -> None:
    to, x = given.topic(s, partitions=2), producer(s)
    x.do(x.add(to))
    given.delete(s, to)
    s.ask(add(x, of(to, 1)))
    s.ask(x.describe())
    x.ends()


@scenario(worn=True)
def worn_and_its_last_epoch(s: Peer) -> None:
    to, x = given.topic(s), worn(s).start()
    s.ask(add(x, of(to)))
    s.ask(add(x, of(to), producer_epoch=32_767))
    x.ends()
    s.ask(add(x, of(to)))
    s.ask(x.describe())


# -- between brokers -----------------------------------------------------------------------------


@scenario(since=BROKERS_SINCE, any_level=True)
def verified(s: Peer) -> None:
    to, x = given.topic(s, partitions=2), producer(s)
    s.ask(verify(x, of(to)))
    x.do(x.add(to))
    s.ask(verify(x, of(to)))
    s.ask(verify(x, of(to), of(to, 1), (s.name("unknown"), 0)))
    s.ask(x.describe())


@scenario(since=BROKERS_SINCE, any_level=True)
def verified_of_others(s: Peer) -> None:
    to, old = given.topic(s), producer(s)
    x = producer(s)
    x.do(x.add(to))
    s.ask(verify(old, of(to)))
    s.ask(verify(x, of(to), producer_epoch=x.epoch + 1))
    s.ask(verify(x, of(to), producer_id=x.id + 5_000_000))
    s.ask(verify(x, of(to), transactional_id=s.name("unknown")))
    s.ask(verify(x, of(to), transactional_id=""))
    s.ask(verify(x))


@scenario(since=BROKERS_SINCE, any_level=True)
def verified_after_the_end(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).finish()
    s.ask(verify(x, of(to)))
    s.ask(verify(x, of(to), producer_epoch=x.epoch - 1))


@scenario(since=BROKERS_SINCE, any_level=True)
def verified_while_the_end_is_under_way(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).freeze(to)
    s.ask(verify(x, of(to)))
    s.ask(verify(x, of(to), producer_epoch=x.epoch - 1))
    s.ask(verify(x, of(to), producer_id=x.id + 5_000_000))


@scenario(since=BROKERS_SINCE, any_level=True)
def several_transactions(s: Peer) -> None:
    to, x, y = given.topic(s, partitions=2), producer(s), producer(s, "y")
    unknown = Producer(s, s.name("unknown"))
    x.do(x.add(to))
    s.ask(
        batched(
            part(x, of(to), of(to, 1), verify_only=True),
            part(y, of(to, 1), verify_only=True),
            part(unknown, of(to), verify_only=True),
        ),
        pick=lambda r: sorted(r.results_by_transaction, key=lambda each: each.transactional_id),
    )
    s.ask(x.describe())
    s.ask(y.describe())


@scenario(since=BROKERS_SINCE)
def several_transactions_that_are_added_to(s: Peer) -> None:
    to, x, y = given.topic(s, partitions=2), producer(s), producer(s, "y")
    ghost = s.name("ghost"), 0
    s.ask(
        batched(part(x, of(to), of(to, 1)), part(y, of(to), ghost)),
        pick=lambda r: sorted(r.results_by_transaction, key=lambda each: each.transactional_id),
    )
    s.ask(x.describe())
    s.ask(y.describe())
