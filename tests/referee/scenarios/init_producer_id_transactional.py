"""InitProducerId with a transactional id: resuming, fencing, and aborting."""

from typing import Any

from barnabas.protocol.messages.init_producer_id import API, InitProducerIdRequest
from tests.referee import given
from tests.referee.scenario import LEVELS, Peer, Scenarios
from tests.referee.transactions import Producer, is_no_longer_concurrent, producer, worn

scenario = Scenarios(API, LEVELS)

RESUMES = 3
"""The first version in which a producer sends its id and epoch (KIP-360)."""

MAX_TIMEOUT_MS = 900_000


def unknown(s: Peer, suffix: str = "x", **options: Any) -> Producer:
    """Return a producer that has no id yet."""
    return Producer(s, s.name(suffix), **options)


def init(x: Producer, **options: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        **({"transactional_id": x.transactional_id, "transaction_timeout_ms": 60_000} | options)
    )


@scenario
def the_first_of_a_transactional_id(s: Peer) -> None:
    x = unknown(s)
    s.ask(x.describe())
    x.ask(x.init(), until=is_no_longer_concurrent)
    s.ask(x.describe())


@scenario
def each_gets_the_next_epoch(s: Peer) -> None:
    x = producer(s)
    x.ask(x.init())
    x.ask(x.init())
    s.ask(x.describe())


@scenario
def another_timeout(s: Peer) -> None:
    x = producer(s)
    x.ask(x.init(30_000))
    s.ask(x.describe())


@scenario
def timeouts_out_of_range(s: Peer) -> None:
    x = producer(s)
    for timeout_ms in (0, -1, -(2**31), MAX_TIMEOUT_MS + 1, 2**31 - 1):
        s.ask(x.init(timeout_ms))
    s.ask(unknown(s, "y").init(0))
    s.ask(x.describe())


@scenario
def the_longest_and_the_shortest_timeout(s: Peer) -> None:
    x = producer(s)
    x.ask(x.init(MAX_TIMEOUT_MS))
    x.ask(x.init(1))
    s.ask(x.describe())


@scenario
def two_transactional_ids(s: Peer) -> None:
    x, y = producer(s), producer(s, "y")
    assert x.id != y.id
    x.ask(x.init())
    y.ask(y.init())


@scenario
def unusual_transactional_ids(s: Peer) -> None:
    for suffix in ("ä-ü", "with spaces and/slashes", "x" * 1000, "\t"):
        x = producer(s, suffix)
        x.ask(x.init())
        s.ask(x.describe())


@scenario(since=RESUMES)
def resumes_with_its_epoch(s: Peer) -> None:
    x = producer(s)
    x.ask(x.init(resume=True))
    x.ask(x.init(resume=True))
    s.ask(x.describe())


@scenario(since=RESUMES)
def resumes_again_after_a_lost_answer(s: Peer) -> None:
    x = producer(s)
    lost = x.init(resume=True)
    s.ask(lost)
    s.ask(lost)
    s.ask(lost)
    s.ask(x.describe())


@scenario(since=RESUMES)
def resumes_with_an_older_epoch(s: Peer) -> None:
    x = producer(s)
    old = x.init(resume=True)
    x.ask(x.init())
    s.ask(old)
    x.ask(x.init(resume=True))
    x.ask(x.init(resume=True))
    s.ask(old)
    s.ask(x.describe())


@scenario(since=RESUMES)
def resumes_with_a_future_epoch(s: Peer) -> None:
    x = producer(s)
    for epoch in (x.epoch + 1, 32_766, 32_767):
        s.ask(init(x, producer_id=x.id, producer_epoch=epoch))
    s.ask(x.describe())


@scenario(since=RESUMES)
def resumes_with_another_producer_id(s: Peer) -> None:
    x, y = producer(s), producer(s, "y")
    s.ask(init(x, producer_id=y.id, producer_epoch=y.epoch))
    s.ask(init(x, producer_id=x.id + 5_000_000, producer_epoch=x.epoch))
    s.ask(x.describe())


@scenario(since=RESUMES)
def resumes_an_unknown_transactional_id(s: Peer) -> None:
    x = unknown(s)
    s.ask(init(x, producer_id=4_000_000, producer_epoch=3))
    s.ask(x.describe())


@scenario(since=RESUMES)
def an_id_without_epoch_and_an_epoch_without_id(s: Peer) -> None:
    x = producer(s)
    s.ask(init(x, producer_id=x.id))
    s.ask(init(x, producer_epoch=x.epoch))
    s.ask(init(x, producer_id=x.id, producer_epoch=-2))
    s.ask(init(x, producer_id=-2, producer_epoch=x.epoch))
    s.ask(x.describe())


@scenario
def an_open_transaction_is_aborted(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to, b"a", b"b")
    s.ask(x.init())
    x.ask(x.init(), until=is_no_longer_concurrent)
    x.aftermath(to)


@scenario
def an_open_transaction_without_a_record_is_aborted(s: Peer) -> None:
    to, x = given.topic(s), producer(s).commit_offset(s.name("g"), given.topic(s, "u"), 5)
    x.join(to)
    s.ask(x.init())
    x.ask(x.init(), until=is_no_longer_concurrent)
    x.aftermath(to)


@scenario(since=RESUMES)
def an_open_transaction_is_aborted_by_its_own_producer(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to)
    mine = x.init(resume=True)
    s.ask(mine)
    s.ask(mine, until=is_no_longer_concurrent)
    x.aftermath(to)


@scenario(since=RESUMES)
def an_open_transaction_and_older_producers(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    old = x.init(resume=True)
    x.start().write(to)
    s.ask(init(x, producer_id=x.id + 5_000_000, producer_epoch=x.epoch))
    s.ask(x.describe())
    s.ask(old)
    x.wait_until_ended()
    s.ask(old)
    x.aftermath(to)


@scenario
def after_a_commit(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).finish()
    x.ask(x.init())
    x.write(to, b"b").finish()
    x.aftermath(to)


@scenario
def after_an_abort(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).finish(committed=False)
    x.ask(x.init())
    x.aftermath(to)


@scenario(since=RESUMES)
def resumes_after_a_commit(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).finish()
    lost = x.init(resume=True)
    s.ask(lost)
    x.ask(lost)
    x.aftermath(to)


@scenario(since=RESUMES)
def resumes_with_the_epoch_before_the_commit(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    before = x.init(resume=True)
    x.write(to).finish()
    s.ask(before)
    s.ask(before)
    x.aftermath(to)


@scenario
def while_a_commit_is_under_way(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).freeze(to)
    s.ask(x.init())
    s.ask(x.describe())


@scenario(since=RESUMES)
def resumes_during_an_abort(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to).freeze(to, committed=False)
    s.ask(x.init(resume=True))
    s.ask(init(x, producer_id=x.id, producer_epoch=0))
    s.ask(x.describe())


@scenario(worn=True)
def worn_it_gets_another_producer_id(s: Peer) -> None:
    x = worn(s)
    before = x.id
    x.ask(x.init())
    assert x.id == before
    x.ask(x.init())
    assert x.id != before
    s.ask(x.describe())


@scenario(since=RESUMES, worn=True)
def worn_it_resumes_with_another_producer_id(s: Peer) -> None:
    x = worn(s)
    x.ask(x.init(resume=True))
    lost = x.init(resume=True)
    s.ask(lost)
    x.ask(lost)
    x.ask(x.init(resume=True))
    s.ask(lost)
    s.ask(x.describe())


@scenario(since=RESUMES, worn=True)
def worn_and_an_epoch_of_the_future(s: Peer) -> None:
    x = worn(s)
    s.ask(init(x, producer_id=x.id, producer_epoch=32_766))
    s.ask(init(x, producer_id=x.id, producer_epoch=32_767))
    x.ask(x.init())
    s.ask(init(x, producer_id=x.id, producer_epoch=32_767))
    s.ask(init(x, producer_id=x.id, producer_epoch=32_764))
    s.ask(x.describe())


@scenario(worn=True)
def worn_and_a_transaction_is_open(s: Peer) -> None:
    to, x = given.topic(s), worn(s)
    x.start().write(to)
    s.ask(x.init())
    x.ask(x.init(), until=is_no_longer_concurrent)
    x.aftermath(to)
    x.write(to, b"b").finish()
    x.aftermath(to)


@scenario
def two_processes_share_a_transactional_id(s: Peer) -> None:
    to, old = given.topic(s, partitions=2), producer(s)
    old.write(to, b"of the older")
    new = producer(s)
    old.ask(old.produce(to, b"late"))
    old.ask(old.add(to, 1))
    old.ask(old.end())
    new.ask(new.init(), until=is_no_longer_concurrent)
    new.write(to, b"of the newer").finish()
    new.aftermath(to)
