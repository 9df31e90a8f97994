"""Produce with transactional batches: their sequences."""

from barnabas.protocol.messages.produce import API
from tests.referee import given
from tests.referee.scenario import LEVELS, Peer, Scenarios
from tests.referee.transactions import producer, worn

scenario = Scenarios(API, LEVELS)

MAX_SEQUENCE = 2**31 - 1
REMEMBERED = 5
"""The number of batches of a producer that a partition remembers."""


@scenario
def a_gap_in_a_transaction(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.join(to)
    s.ask(x.produce(to, b"a"))
    s.ask(x.produce(to, b"c", base_sequence=2))
    s.ask(x.produce(to, b"b"))
    x.aftermath(to)


@scenario
def a_transaction_that_begins_with_a_gap(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.join(to)
    s.ask(x.produce(to, b"c", base_sequence=2))
    s.ask(x.produce(to, b"b", base_sequence=1))
    s.ask(x.produce(to, b"a", base_sequence=0))
    x.aftermath(to)


@scenario(until=11)
def a_gap_after_a_batch_that_was_refused(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    # The partition is not in the transaction yet.
    s.ask(x.produce(to, b"a", base_sequence=0))
    x.join(to)
    s.ask(x.produce(to, b"d", base_sequence=3))
    s.ask(x.produce(to, b"c", base_sequence=2))
    s.ask(x.produce(to, b"a", base_sequence=0))
    x.aftermath(to)


@scenario(until=11)
def a_gap_after_a_batch_with_a_gap_that_was_refused(s: Peer) -> None:
    to, other, x = given.topic(s), given.topic(s, "o"), producer(s)
    x.write(other)
    s.ask(x.produce(to, b"c", base_sequence=2))
    x.join(to)
    s.ask(x.produce(to, b"d", base_sequence=3))
    s.ask(x.produce(to, b"c", base_sequence=2))
    x.aftermath(to)


@scenario
def the_next_transaction_begins_with_a_gap(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to, b"a").finish()
    x.join(to)
    s.ask(x.produce(to, b"c", base_sequence=5))
    s.ask(x.produce(to, b"b"))
    x.aftermath(to)


@scenario
def a_forgotten_batch_comes_again_before_the_next_transaction(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    for _ in range(REMEMBERED + 1):
        x.write(to, b"a")
    epoch = x.epoch
    x.finish()
    x.join(to)
    s.ask(x.produce(to, b"a", base_sequence=0, producer_epoch=epoch))
    s.ask(x.produce(to, b"b"))
    x.aftermath(to)


@scenario
def a_newer_epoch_begins_in_the_middle(s: Peer) -> None:
    to, old = given.topic(s), producer(s)
    old.write(to, b"a").finish()
    x = producer(s)
    x.join(to)
    s.ask(x.produce(to, b"b", base_sequence=1))
    s.ask(x.produce(to, b"c", base_sequence=0))
    x.aftermath(to)


@scenario
def half_of_a_batch_already_written(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.join(to)
    s.ask(x.produce(to, b"a", b"b", b"c"))
    s.ask(x.produce(to, b"b", b"c", base_sequence=1))
    s.ask(x.produce(to, b"c", b"d", base_sequence=2))
    x.aftermath(to)


@scenario
def a_sequence_that_wraps_in_a_transaction(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.join(to)
    s.ask(x.produce(to, b"a", b"b", base_sequence=MAX_SEQUENCE))
    s.ask(x.produce(to, b"c", base_sequence=1))
    x.ends()
    x.aftermath(to)


@scenario
def no_sequence(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.join(to)
    s.ask(x.produce(to, b"a", base_sequence=-1))
    x.aftermath(to)


@scenario
def a_transactional_batch_without_producer_id(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.join(to)
    s.ask(x.produce(to, b"a", producer_id=-1, producer_epoch=-1, base_sequence=-1))


@scenario
def a_marker_of_a_client(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to, b"a")
    marker = x.batch(to, b"b", control=True, base_sequence=-1)
    s.ask(given.produce(to, marker, transactional_id=x.transactional_id))
    x.aftermath(to)


@scenario(worn=True)
def worn_and_its_last_epochs(s: Peer) -> None:
    to, x = given.topic(s), worn(s)
    for value in (b"a", b"b", b"c"):
        x.join(to)
        s.ask(x.produce(to, value))
        s.ask(x.produce(to, b"future", producer_epoch=32_767, base_sequence=0))
        x.ends()
    x.aftermath(to)
