"""Fetch of open, committed and aborted transactions, by isolation level."""

from barnabas.protocol.messages.fetch import API
from tests.referee import given
from tests.referee.given import Topic
from tests.referee.scenario import LEVELS, Peer, Scenarios
from tests.referee.transactions import COMMITTED, UNCOMMITTED, markers, producer

scenario = Scenarios(API, LEVELS)


def read(s: Peer, to: Topic, offset: int = 0, **options: int) -> None:
    """Fetch at both isolation levels."""
    for isolation in (UNCOMMITTED, COMMITTED):
        s.ask(given.fetch(to, offset, isolation_level=isolation, **options))


@scenario
def an_open_transaction(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to, b"a", b"b")
    read(s, to)
    read(s, to, 1)
    read(s, to, 2)


@scenario
def an_open_transaction_behind_others(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    given.records(s, to, b"plain")
    x.write(to, b"a").finish()
    x.write(to, b"b")
    given.records(s, to, b"more")
    read(s, to)
    read(s, to, 3)


@scenario
def a_committed_transaction(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to, b"a", b"b").finish()
    for offset in range(4):
        read(s, to, offset)


@scenario
def an_aborted_transaction(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to, b"a", b"b").finish(committed=False)
    for offset in range(4):
        read(s, to, offset)


@scenario
def committed_and_aborted_ones(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    for number in range(6):
        x.write(to, b"%d" % number).finish(committed=number % 3 != 0)
    for offset in (0, 3, 6, 11):
        read(s, to, offset)


@scenario
def interleaved_producers(s: Peer) -> None:
    to, x, y, z = given.topic(s), producer(s), producer(s, "y"), producer(s, "z")
    x.write(to, b"x1")
    y.write(to, b"y1")
    given.records(s, to, b"plain")
    z.write(to, b"z1")
    x.write(to, b"x2").finish(committed=False)
    read(s, to)
    z.finish(committed=False)
    read(s, to)
    y.finish()
    for offset in (0, 2, 4, 6):
        read(s, to, offset)


@scenario
def a_transaction_that_began_before_the_offset(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to, b"a")
    given.records(s, to, b"plain", b"plain")
    x.write(to, b"b").finish(committed=False)
    for offset in (1, 3, 4):
        read(s, to, offset)


@scenario
def some_batches_at_a_time(s: Peer) -> None:
    to, x, y = given.topic(s), producer(s), producer(s, "y")
    for number in range(4):
        x.write(to, b"%d" % number * 100).finish(committed=number % 2 != 0)
    y.write(to, b"y" * 100).finish(committed=False)
    for offset in (0, 2, 4, 6, 8):
        read(s, to, offset, partition_max_bytes=170)


@scenario
def a_producer_that_was_fenced(s: Peer) -> None:
    to, old = given.topic(s), producer(s)
    old.write(to, b"of the older")
    x = producer(s).write(to, b"of the newer")
    read(s, to)
    x.finish()
    read(s, to)


@scenario
def a_transaction_that_timed_out(s: Peer) -> None:
    to, x = given.topic(s), producer(s, timeout_ms=100)
    x.write(to, b"a")
    s.do(x.describe(), until=lambda r: r.transaction_states[0].transaction_state != "Ongoing")
    x.wait_until_ended()
    read(s, to)


@scenario
def partitions_that_were_added_alone(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.do(x.add(to))
    read(s, to)
    x.finish(committed=False)
    read(s, to)


@scenario
def markers_of_an_operator(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to, b"a")
    x.do(markers(x, to, committed=False))
    read(s, to)
    x.finish()
    read(s, to)


@scenario
def a_log_that_begins_later(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to, b"a", b"b").finish(committed=False)
    x.write(to, b"c")
    s.do(given.delete_records(to, 2))
    read(s, to)
    read(s, to, 2)
    x.finish()
    read(s, to, 2)


@scenario
def waiting_for_the_end_of_a_transaction(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to, b"a")
    waiting = given.fetch(to, isolation_level=COMMITTED, max_wait_ms=10_000, min_bytes=1)
    s.post(waiting, on="reader")
    x.finish()
    s.take("reader")


@scenario
def several_partitions(s: Peer) -> None:
    to, x = given.topic(s, partitions=3), producer(s)
    x.write(to, b"0").write(to, b"1", partition=1).finish(committed=False)
    x.write(to, b"2", partition=2)
    for partition in range(3):
        read(s, to, partition=partition)
