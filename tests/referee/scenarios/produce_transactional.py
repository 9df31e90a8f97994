"""Produce with transactional batches: producers, transactional ids, and states of transactions."""

from typing import Any

from barnabas.protocol.messages.produce import (
    API,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.referee import given
from tests.referee.given import Topic
from tests.referee.scenario import LEVELS, Peer, Scenarios
from tests.referee.transactions import Producer, markers, producer

scenario = Scenarios(API, LEVELS)


def several(
    transactional_id: str | None, *data: tuple[Topic, int, bytes], acks: int = -1
) -> ProduceRequest:
    """Return one request for several partitions."""
    topics: dict[str, TopicProduceData] = {}
    for to, partition, records in data:
        topic = TopicProduceData(name=to.name, topic_id=to.id, partition_data=[])
        topics.setdefault(to.name, topic).partition_data.append(
            PartitionProduceData(index=partition, records=records)
        )
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10_000,
        topic_data=list(topics.values()),
    )


def foreign(x: Producer, to: Topic, transactional_id: str | None, **options: Any) -> ProduceRequest:
    """Return a request with a batch of x under another transactional id."""
    return given.produce(to, x.batch(to, b"x", **options), transactional_id=transactional_id)


# -- valid requests ------------------------------------------------------------------------------


@scenario
def some_batches_and_a_commit(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.join(to)
    s.ask(x.produce(to, b"a"))
    s.ask(x.produce(to, b"b", b"c"))
    s.ask(x.describe())
    x.ends()
    x.aftermath(to)


@scenario
def some_batches_and_an_abort(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.join(to)
    s.ask(x.produce(to, b"a"))
    s.ask(x.produce(to, b"b", b"c"))
    x.ends(committed=False)
    x.aftermath(to)


@scenario
def two_transactions(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    for value in (b"a", b"b"):
        x.join(to)
        s.ask(x.produce(to, value))
        x.ends()
    x.aftermath(to)


@scenario
def several_partitions_in_one_request(s: Peer) -> None:
    a, b, x = given.topic(s, "a", partitions=2), given.topic(s, "b"), producer(s)
    x.join(a, 0, 1).join(b)
    batches = [(a, 0, x.batch(a, b"1")), (a, 1, x.batch(a, b"2", partition=1))]
    s.ask(several(x.transactional_id, *batches, (b, 0, x.batch(b, b"3"))))
    s.ask(x.describe())
    x.ends()
    x.aftermath(a, b)


@scenario
def acknowledged_by_the_leader_alone(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.join(to)
    s.ask(several(x.transactional_id, (to, 0, x.batch(to, b"a")), acks=1))
    x.ends()
    x.aftermath(to)


@scenario
def a_batch_that_is_sent_again(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.join(to)
    again = x.produce(to, b"a", b"b")
    s.ask(again)
    s.ask(again)
    s.ask(x.produce(to, b"c"))
    s.ask(again)
    x.ends()
    x.aftermath(to)


@scenario
def a_transactional_producer_outside_of_transactions(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    plain = x.batch(to, b"a", transactional=False)
    s.ask(given.produce(to, plain, transactional_id=x.transactional_id))
    s.ask(given.produce(to, x.batch(to, b"b", transactional=False)))
    x.aftermath(to)


@scenario
def others_write_meanwhile(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.join(to)
    s.ask(x.produce(to, b"a"))
    s.ask(given.produce(to, given.batch(b"plain")))
    s.ask(x.produce(to, b"b"))
    x.ends(committed=False)
    x.aftermath(to)


# -- producers and transactional ids -------------------------------------------------------------


@scenario
def no_transactional_id(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.join(to)
    s.ask(foreign(x, to, None))
    x.aftermath(to)


@scenario
def no_transactional_id_for_one_of_two_partitions(s: Peer) -> None:
    to, x = given.topic(s, partitions=2), producer(s)
    x.join(to)
    s.ask(several(None, (to, 0, x.batch(to, b"a")), (to, 1, given.batch(b"plain"))))
    x.aftermath(to)


@scenario
def the_transactional_id_of_another_producer(s: Peer) -> None:
    to, x, y = given.topic(s), producer(s), producer(s, "y")
    x.join(to)
    y.join(to)
    s.ask(foreign(x, to, y.transactional_id))
    x.aftermath(to)


@scenario
def an_unknown_transactional_id(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.join(to)
    s.ask(foreign(x, to, s.name("unknown")))
    x.aftermath(to)


@scenario
def two_producers_in_one_request(s: Peer) -> None:
    to, x, y = given.topic(s, partitions=2), producer(s), producer(s, "y")
    x.join(to, 0)
    y.join(to, 1)
    mine = to, 0, x.batch(to, b"x")
    s.ask(several(x.transactional_id, mine, (to, 1, y.batch(to, b"y", partition=1))))
    x.aftermath(to)


@scenario
def two_epochs_in_one_request(s: Peer) -> None:
    to, old = given.topic(s, partitions=2), producer(s)
    x = producer(s).join(to, 0, 1)
    mine = to, 0, x.batch(to, b"x")
    s.ask(several(x.transactional_id, mine, (to, 1, old.batch(to, b"y", partition=1))))
    x.aftermath(to)


@scenario
def an_older_epoch(s: Peer) -> None:
    to, old = given.topic(s), producer(s)
    old.write(to, b"of the older")
    x = producer(s)
    s.ask(old.produce(to, b"late"))
    x.write(to, b"of the newer")
    s.ask(old.produce(to, b"later"))
    x.finish()
    s.ask(old.produce(to, b"last"))
    x.aftermath(to)


@scenario
def an_older_epoch_in_a_partition_that_it_never_wrote_to(s: Peer) -> None:
    to, old = given.topic(s), producer(s)
    x = producer(s)
    s.ask(old.produce(to, b"late"))
    x.join(to)
    s.ask(old.produce(to, b"later"))
    x.aftermath(to)


@scenario
def an_epoch_of_the_future(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.join(to)
    s.ask(x.produce(to, b"a", producer_epoch=x.epoch + 1, base_sequence=0))
    s.ask(x.produce(to, b"a"))
    x.aftermath(to)


@scenario
def an_epoch_above_the_producers_own(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to, b"a")
    s.ask(x.produce(to, b"b", producer_epoch=x.epoch + 1, base_sequence=0))
    s.ask(x.produce(to, b"c"))
    x.aftermath(to)


# -- states of the transaction -------------------------------------------------------------------


@scenario
def a_partition_that_was_not_added(s: Peer) -> None:
    to, x = given.topic(s, partitions=2), producer(s)
    s.ask(x.produce(to, b"a"))
    x.join(to)
    s.ask(x.produce(to, b"b", partition=1))
    x.aftermath(to)


@scenario
def one_of_two_partitions_was_not_added(s: Peer) -> None:
    to, x = given.topic(s, partitions=2), producer(s)
    x.join(to)
    mine = to, 0, x.batch(to, b"a")
    s.ask(several(x.transactional_id, mine, (to, 1, x.batch(to, b"b", partition=1))))
    s.ask(x.describe())
    x.aftermath(to)


@scenario
def unknown_topics_and_partitions(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.join(to)
    ghost = Topic(s.name("ghost"), b"0123456789abcdef")
    mine = to, 0, x.batch(to, b"a")
    s.ask(several(x.transactional_id, mine, (to, 3, x.batch(to, b"b", partition=3))))
    s.ask(several(x.transactional_id, (ghost, 0, x.batch(ghost, b"c"))))
    x.aftermath(to)


@scenario
def an_internal_topic(s: Peer) -> None:
    x = producer(s)
    if s.version <= 12:
        offsets = Topic("__consumer_offsets", bytes(16))
        s.ask(x.produce(offsets, b"a"))
    s.ask(x.describe())


@scenario
def after_a_commit(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    old = Producer(s, x.transactional_id, x.id, x.epoch)
    x.write(to).finish()
    s.ask(old.produce(to, b"late", base_sequence=1))
    s.ask(x.produce(to, b"b"))
    x.aftermath(to)


@scenario
def after_an_abort(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    old = Producer(s, x.transactional_id, x.id, x.epoch)
    x.write(to).finish(committed=False)
    s.ask(old.produce(to, b"late", base_sequence=1))
    s.ask(x.produce(to, b"b"))
    x.aftermath(to)


@scenario
def a_batch_of_the_transaction_before_is_sent_again(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.join(to)
    again = x.produce(to, b"a")
    s.ask(again)
    x.finish()
    s.ask(again)
    x.join(to)
    s.ask(x.produce(to, b"b"))
    s.ask(again)
    x.aftermath(to)


@scenario
def after_the_timeout(s: Peer) -> None:
    to, x = given.topic(s), producer(s, timeout_ms=150)
    x.write(to)
    s.do(x.describe(), until=lambda r: r.transaction_states[0].transaction_state != "Ongoing")
    x.wait_until_ended()
    s.ask(x.produce(to, b"late"))
    x.aftermath(to)


@scenario
def while_the_end_is_under_way(s: Peer) -> None:
    to, x = given.topic(s, partitions=2), producer(s)
    x.write(to).freeze(to)
    s.ask(x.produce(to, b"b", partition=1))
    s.ask(x.describe())


@scenario
def ended_by_an_operator(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to, b"a")
    x.do(markers(x, to, committed=False))
    s.ask(x.produce(to, b"b"))
    x.ends()
    x.aftermath(to)


@scenario
def a_plain_batch_of_the_producer_in_its_open_transaction(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to, b"a")
    plain = x.batch(to, b"b", transactional=False, base_sequence=1)
    s.ask(given.produce(to, plain, transactional_id=x.transactional_id))
    s.ask(given.produce(to, plain))
    s.ask(x.produce(to, b"c"))
    x.ends()
    x.aftermath(to)
