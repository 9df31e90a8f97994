"""EndTxn: commit and abort in each state, of each epoch, and again."""

from typing import Any

from barnabas.protocol.messages.end_txn import API
from tests.referee import given
from tests.referee.scenario import LEVELS, Peer, Scenarios
from tests.referee.transactions import (
    Producer,
    has_no_error,
    is_no_longer_concurrent,
    producer,
    worn,
)

scenario = Scenarios(API, LEVELS)

TIMEOUT_MS = 150
"""The timeout of transactions that are to time out, but not before they have written records."""


def end(x: Producer, **options: Any) -> Any:
    """End the transaction as the client under test does, which adopts the answer."""
    return x.ask(x.end(**options))


@scenario
def a_commit(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to, b"a", b"b")
    end(x)
    x.aftermath(to)


@scenario
def an_abort(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to, b"a", b"b")
    end(x, committed=False)
    x.aftermath(to)


@scenario
def partitions_without_a_record(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.do(x.add(to))
    end(x)
    x.aftermath(to)
    x.do(x.add(to))
    end(x, committed=False)
    x.aftermath(to)


@scenario
def a_commit_of_nothing(s: Peer) -> None:
    x = producer(s)
    end(x)
    s.ask(x.describe())


@scenario
def an_abort_of_nothing(s: Peer) -> None:
    x = producer(s)
    end(x, committed=False)
    x.aftermath()
    end(x, committed=False)
    x.aftermath()


@scenario
def a_commit_that_is_sent_again(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to)
    again = x.end()
    s.ask(again)
    x.aftermath(to)
    s.ask(again)
    s.ask(again)
    x.aftermath(to)


@scenario
def an_abort_that_is_sent_again(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to)
    again = x.end(committed=False)
    s.ask(again)
    x.aftermath(to)
    s.ask(again)
    x.aftermath(to)


@scenario
def the_opposite_of_a_commit(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to)
    opposite = x.end(committed=False)
    s.ask(x.end())
    x.wait_until_ended()
    s.ask(opposite)
    x.aftermath(to)


@scenario
def the_opposite_of_an_abort(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to)
    opposite = x.end()
    s.ask(x.end(committed=False))
    x.wait_until_ended()
    s.ask(opposite)
    x.aftermath(to)


@scenario
def another_commit_after_a_commit(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).finish()
    end(x)
    x.aftermath(to)


@scenario
def an_abort_after_a_commit(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).finish()
    end(x, committed=False)
    x.aftermath(to)


@scenario
def a_commit_after_an_abort(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).finish(committed=False)
    end(x)
    x.aftermath(to)


@scenario
def another_abort_after_an_abort(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).finish(committed=False)
    end(x, committed=False)
    x.aftermath(to)
    x.write(to, b"b")
    end(x)
    x.aftermath(to)


@scenario
def while_a_commit_is_under_way(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to)
    again, opposite = x.end(), x.end(committed=False)
    x.freeze(to)
    s.ask(again)
    s.ask(opposite)
    s.ask(x.end())
    s.ask(x.end(committed=False))
    s.ask(x.end(producer_epoch=x.epoch + 5))
    s.ask(x.end(producer_id=x.id + 5_000_000))
    s.ask(x.describe())


@scenario
def while_an_abort_is_under_way(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to)
    again, opposite = x.end(committed=False), x.end()
    x.freeze(to, committed=False)
    s.ask(again)
    s.ask(opposite)
    s.ask(x.end(committed=False))
    s.ask(x.end())
    s.ask(x.describe())


@scenario
def an_older_epoch(s: Peer) -> None:
    to, old = given.topic(s), producer(s)
    x = producer(s).write(to)
    s.ask(old.end())
    s.ask(old.end(committed=False))
    s.ask(x.describe())
    end(x)
    x.aftermath(to)


@scenario
def an_epoch_two_before(s: Peer) -> None:
    to, old = given.topic(s), producer(s)
    producer(s)
    x = producer(s).write(to)
    s.ask(old.end())
    s.ask(old.end(committed=False))
    x.finish()
    s.ask(old.end())
    x.aftermath(to)


@scenario
def an_epoch_of_the_future(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to)
    for epoch in (x.epoch + 1, 32_766, 32_767, -1):
        s.ask(x.end(producer_epoch=epoch))
        s.ask(x.end(producer_epoch=epoch, committed=False))
    s.ask(x.describe())


@scenario
def another_producer_id(s: Peer) -> None:
    to, x, y = given.topic(s), producer(s), producer(s, "y")
    x.write(to)
    s.ask(x.end(producer_id=y.id))
    s.ask(x.end(producer_id=-1, producer_epoch=-1))
    s.ask(x.describe())


@scenario
def an_unknown_transactional_id(s: Peer) -> None:
    x = producer(s)
    s.ask(x.end(transactional_id=s.name("unknown")))
    s.ask(x.end(transactional_id="", committed=False))


@scenario
def after_the_timeout(s: Peer) -> None:
    to, x = given.topic(s), producer(s, timeout_ms=TIMEOUT_MS)
    x.write(to)
    s.do(x.describe(), until=lambda r: r.transaction_states[0].transaction_state != "Ongoing")
    x.wait_until_ended()
    s.ask(x.end())
    s.ask(x.end(committed=False))
    x.aftermath(to)


@scenario
def a_newer_producer_after_the_timeout(s: Peer) -> None:
    to, old = given.topic(s), producer(s, timeout_ms=TIMEOUT_MS)
    old.write(to)
    s.do(old.describe(), until=lambda r: r.transaction_states[0].transaction_state != "Ongoing")
    old.wait_until_ended()
    x = producer(s)
    s.ask(old.end())
    x.write(to, b"b")
    end(x)
    x.aftermath(to)


@scenario
def aborted_by_a_newer_producer(s: Peer) -> None:
    to, old = given.topic(s), producer(s)
    old.write(to, b"of the older")
    s.ask(old.init())
    old.wait_until_ended()
    s.ask(old.end())
    s.ask(old.end(committed=False))
    x = producer(s).write(to, b"of the newer")
    s.ask(old.end())
    end(x)
    x.aftermath(to)


def zombie_whose_successor_ends(
    s: Peer, zombie: Producer, x: Producer, *, committed: bool = True
) -> None:
    """Let the successor write and end a transaction by the older protocol, before the zombie."""
    to = given.topic(s)
    s.do(x.add(to), version=3, until=has_no_error)
    s.do(x.produce(to, b"of the older protocol"), version=11, until=has_no_error)
    s.do(x.end(committed=committed), version=4, until=has_no_error)
    x.wait_until_ended()
    s.ask(zombie.end())
    s.ask(zombie.end(committed=False))
    x.aftermath(to)


@scenario(since=5, any_level=True)
def a_zombie_whose_successor_speaks_the_older_protocol(s: Peer) -> None:
    zombie_whose_successor_ends(s, producer(s), producer(s))


@scenario(since=5, any_level=True)
def a_zombie_whose_successor_aborts_by_the_older_protocol(s: Peer) -> None:
    zombie_whose_successor_ends(s, producer(s), producer(s), committed=False)


@scenario(since=5, worn=True)
def worn_and_a_zombie_whose_successor_speaks_the_older_protocol(s: Peer) -> None:
    worn(s)
    zombie = worn(s)
    zombie_whose_successor_ends(s, zombie, worn(s))


@scenario
def one_after_the_other(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    for value, committed in ((b"a", True), (b"b", False), (b"c", False), (b"d", True)):
        x.write(to, value)
        end(x, committed=committed)
        x.wait_until_ended()
    x.aftermath(to)


@scenario
def partitions_of_two_topics_and_two_groups(s: Peer) -> None:
    a, b, x = given.topic(s, "a", partitions=2), given.topic(s, "b"), producer(s)
    x.write(a).write(a, partition=1).write(b)
    x.commit_offset(s.name("g"), a, 3).commit_offset(s.name("h"), b, 4)
    s.ask(x.describe())
    end(x)
    x.aftermath(a, b)
    for suffix, to in (("g", a), ("h", b)):
        stable = given.offset_fetch(10, s.name(suffix), (to, [0]), require_stable=True)
        s.ask(stable, until=lambda r: r.groups[0].topics[0].partitions[0].error_code == 0)


@scenario
def offsets_alone_are_aborted(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.commit_offset(s.name("g"), to, 3)
    end(x, committed=False)
    x.aftermath()
    stable = given.offset_fetch(10, s.name("g"), (to, [0]), require_stable=True)
    s.ask(stable, until=lambda r: r.groups[0].topics[0].partitions[0].error_code == 0)


@scenario
def the_topic_is_gone(s: Peer) -> None:
    to, kept, x = given.topic(s), given.topic(s, "kept"), producer(s)
    x.write(to).write(kept)
    given.delete(s, to)
    end(x)
    x.aftermath(kept)


@scenario
def two_producers_in_one_partition(s: Peer) -> None:
    to, x, y = given.topic(s), producer(s), producer(s, "y")
    x.write(to, b"x1")
    y.write(to, b"y1")
    x.write(to, b"x2")
    end(y)
    y.aftermath(to)
    end(x, committed=False)
    x.aftermath(to)


@scenario(worn=True)
def worn_its_last_epochs(s: Peer) -> None:
    to, x = given.topic(s), worn(s)
    for value in (b"a", b"b", b"c"):
        x.write(to, value)
        end(x)
        x.wait_until_ended()
    x.aftermath(to)


@scenario(worn=True)
def worn_a_commit_that_is_sent_again(s: Peer) -> None:
    to, x = given.topic(s), worn(s).start()
    x.write(to)
    again, opposite = x.end(), x.end(committed=False)
    end(x)
    x.wait_until_ended()
    s.ask(again)
    s.ask(opposite)
    x.aftermath(to)
    x.write(to, b"b")
    s.ask(again)
    x.wait_until_ended()
    end(x)
    x.aftermath(to)


@scenario(worn=True)
def worn_an_abort_of_nothing(s: Peer) -> None:
    x = worn(s).start()
    again = x.end(committed=False)
    end(x, committed=False)
    x.aftermath()
    s.ask(again)
    x.ask(x.init(), until=is_no_longer_concurrent)
    s.ask(again)


@scenario(worn=True)
def worn_and_timed_out(s: Peer) -> None:
    to, x = given.topic(s), worn(s).start(TIMEOUT_MS)
    x.write(to)
    s.do(x.describe(), until=lambda r: r.transaction_states[0].transaction_state != "Ongoing")
    x.aftermath(to)
    s.ask(x.end(committed=False))
    x.ask(x.init())
    x.write(to, b"b")
    end(x)
    x.aftermath(to)
