"""WriteTxnMarkers: markers by the epochs of producers and coordinators, older and newer ones."""

from typing import Any

from barnabas.protocol.messages.write_txn_markers import API, WriteTxnMarkersRequest
from tests.referee import given
from tests.referee.given import Topic
from tests.referee.scenario import LEVELS, Peer, Scenarios
from tests.referee.transactions import Producer, markers, producer, seen

scenario = Scenarios(API, LEVELS)

EPOCH_PER_TRANSACTION = 2
"""The transaction_version of a marker whose epoch must be higher than that of its transaction."""


def versions(s: Peer) -> tuple[int, ...]:
    """Return the transaction versions that a marker can have; up to version 1 it has none."""
    return (0, 1, EPOCH_PER_TRANSACTION) if s.version > 1 else (0,)


def begun(s: Peer) -> tuple[Topic, Producer]:
    to, x = given.topic(s, partitions=2), producer(s)
    return to, x.write(to, b"a")


def mark(x: Producer, to: Topic, *partitions: int, **options: Any) -> WriteTxnMarkersRequest:
    return markers(x, to, *partitions, **options)


@scenario
def a_commit(s: Peer) -> None:
    to, x = begun(s)
    s.ask(mark(x, to))
    seen(s, to)
    s.ask(x.describe())


@scenario
def an_abort(s: Peer) -> None:
    to, x = begun(s)
    s.ask(mark(x, to, committed=False))
    seen(s, to)
    s.ask(x.describe())


@scenario
def the_coordinator_comes_after_an_operator(s: Peer) -> None:
    to, x = begun(s)
    s.ask(mark(x, to, committed=False))
    x.finish()
    x.aftermath(to)
    x.write(to, b"b").finish()
    x.aftermath(to)


@scenario
def a_marker_that_is_written_again(s: Peer) -> None:
    to, x = begun(s)
    s.ask(mark(x, to))
    s.ask(mark(x, to))
    s.ask(mark(x, to, committed=False))
    seen(s, to)


@scenario
def a_producer_that_never_wrote(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    s.ask(mark(x, to, coordinator_epoch=3))
    seen(s, to)


@scenario
def an_epoch_above_that_of_the_transaction(s: Peer) -> None:
    for version in versions(s):
        to, x = given.topic(s, f"t{version}"), producer(s, f"x{version}")
        x.write(to)
        s.ask(mark(x, to, epoch=x.epoch + 1, transaction_version=version))
        s.ask(mark(x, to, epoch=x.epoch + 1, transaction_version=version))
        s.ask(x.produce(to, b"late"))
        seen(s, to)


@scenario
def the_epoch_of_the_transaction(s: Peer) -> None:
    for version in versions(s):
        to, x = given.topic(s, f"t{version}"), producer(s, f"x{version}")
        x.write(to)
        s.ask(mark(x, to, transaction_version=version))
        s.ask(mark(x, to, transaction_version=version))
        seen(s, to)


@scenario
def an_epoch_below_that_of_the_transaction(s: Peer) -> None:
    for version in versions(s):
        to = given.topic(s, f"t{version}")
        producer(s, f"x{version}")
        x = producer(s, f"x{version}").write(to)
        s.ask(mark(x, to, epoch=x.epoch - 1, transaction_version=version))
        seen(s, to)


@scenario(since=2)
def unknown_transaction_versions(s: Peer) -> None:
    for version in (3, 127):
        to, x = given.topic(s, f"t{version}"), producer(s, f"x{version}")
        x.write(to)
        s.ask(mark(x, to, transaction_version=version))
        seen(s, to)


@scenario(since=2)
def versions_below_zero(s: Peer) -> None:
    to, x = begun(s)
    s.ask(mark(x, to, transaction_version=-1))
    seen(s, to)


@scenario
def epochs_of_coordinators(s: Peer) -> None:
    to, x = begun(s)
    s.ask(mark(x, to, coordinator_epoch=7))
    s.ask(mark(x, to, coordinator_epoch=6))
    s.ask(mark(x, to, coordinator_epoch=-1))
    s.ask(mark(x, to, coordinator_epoch=8))
    seen(s, to)


@scenario
def an_older_coordinator_and_an_open_transaction(s: Peer) -> None:
    to, x = begun(s)
    s.ask(mark(x, to, coordinator_epoch=7))
    x.do(x.add(to))
    s.ask(mark(x, to, committed=False, coordinator_epoch=6))
    seen(s, to)


@scenario
def several_partitions_and_unknown_ones(s: Peer) -> None:
    to, x = begun(s)
    s.ask(mark(x, to, 0, 1, 7))
    seen(s, to, 0, 1)
    s.ask(mark(x, Topic(s.name("unknown"), bytes(16))))


@scenario
def several_producers(s: Peer) -> None:
    to, x = begun(s)
    y = producer(s, "y").write(to, b"b")
    # Both ids are seen first, one by one: the order within the answer is not defined.
    x.ask(x.describe())
    y.ask(y.describe())
    both = [*mark(x, to).markers, *mark(y, to, committed=False).markers]
    s.ask(WriteTxnMarkersRequest(markers=both))
    seen(s, to)


@scenario
def no_marker(s: Peer) -> None:
    to, _ = begun(s)
    s.ask(WriteTxnMarkersRequest(markers=[]))
    seen(s, to)


@scenario
def a_marker_for_no_partition(s: Peer) -> None:
    to, x = begun(s)
    request = mark(x, to)
    request.markers[0].topics = []
    s.ask(request)


@scenario
def impossible_producers(s: Peer) -> None:
    to, x = begun(s)
    x.id, x.epoch = -1, -1
    s.ask(mark(x, to))
    seen(s, to)


@scenario
def offsets_of_a_group(s: Peer) -> None:
    to, group = given.topic(s), s.name("g")
    committed, aborted = producer(s), producer(s, "y")
    committed.commit_offset(group, to, 5)
    offsets = Topic("__consumer_offsets", bytes(16))
    s.ask(mark(committed, offsets, 0, 1))
    stable = given.offset_fetch(10, group, (to, [0]), require_stable=True)
    s.ask(stable)
    aborted.commit_offset(group, to, 6)
    s.ask(stable)
    s.ask(mark(aborted, offsets, 0, 1, committed=False))
    s.ask(stable)
    s.ask(mark(aborted, offsets, 9))
