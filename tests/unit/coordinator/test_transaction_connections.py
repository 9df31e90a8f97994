"""The guard of older connections: a stalled EndTxn never ends a later transaction (KAFKA-17754)."""

from collections.abc import Callable

import pytest

from barnabas.coordinator.transaction.metadata import TV0, TV2, Producer
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.unit.coordinator.harness import code_of
from tests.unit.coordinator.transactions import FIRST_ID, A, B, Transactions

STALLED, RETRIED = 1, 2
"""The connection on which EndTxn stalls, and the newer one on which it is sent again."""
Step = Callable[[Transactions, Producer], object]

STORY: list[tuple[str, Step]] = [
    ("end again", lambda here, p: here.end(p, version=TV0, connection=RETRIED)),
    ("markers", lambda here, _: here.mark()),
    ("begin", lambda here, p: here.add(p, A, connection=RETRIED)),
    ("write", lambda here, p: here.verify(p, A)),
    ("add", lambda here, p: here.add(p, B, connection=RETRIED)),
    ("abort", lambda here, p: here.end(p, commits=False, version=TV0, connection=RETRIED)),
    ("markers", lambda here, _: here.mark()),
    ("begin", lambda here, p: here.add(p, A, connection=RETRIED)),
]


async def story(until: int, *, guarded: bool = True) -> tuple[Transactions, Producer]:
    """A transaction that was ended on a stalled connection, and what the producer did since."""
    here = await Transactions(version=1, fences_older_connections=guarded).load()
    producer = here.init()
    here.add(producer, A, connection=STALLED)
    for _, step in STORY[:until]:
        step(here, producer)
    return here, producer


@pytest.mark.parametrize("until", range(1, len(STORY) + 1))
async def test_the_stalled_request_changes_nothing_wherever_it_arrives(until: int) -> None:
    here, producer = await story(until)
    before, markers = here.txn, list(here.sent)
    stalled = code_of(lambda: here.end(producer, version=TV0, connection=STALLED))
    assert stalled == "PRODUCER_FENCED"
    assert code_of(lambda: here.add(producer, B, connection=STALLED)) == "PRODUCER_FENCED"
    assert (here.txn, here.sent) == (before, markers)
    for _, step in STORY[until:]:
        step(here, producer)


async def test_without_the_guard_it_commits_what_is_to_be_aborted() -> None:
    """The flaw that the guard is for, as Apache Kafka has it."""
    here, producer = await story(3, guarded=False)
    assert here.end(producer, version=TV0, connection=STALLED) == producer
    assert here.state == "PrepareCommit"


async def test_the_stalled_request_alone_is_the_producers_own() -> None:
    here, producer = await story(0)
    assert here.end(producer, version=TV0, connection=STALLED) == producer


async def test_a_client_that_reconnects_again_and_again_is_never_refused() -> None:
    here = await Transactions(version=1).load()
    producer = here.init()
    for connection in range(1, 20):
        here.add(producer, A, connection=connection)
        here.add(producer, B, connection=connection)
        here.end(producer, version=TV0, connection=connection)
        here.mark()
        assert here.end(producer, version=TV0, connection=connection + 1) == producer


async def test_a_retry_that_is_told_to_come_later_counts_as_well() -> None:
    """Markers were on their way, or the step was being written, when it came."""
    here, producer = await story(0)
    here.log.held = True
    here.end(producer, version=TV0, connection=STALLED)
    assert code_of(lambda: here.end(producer, version=TV0, connection=3)) == (
        "CONCURRENT_TRANSACTIONS"
    )
    assert code_of(lambda: here.add(producer, A, connection=4)) == "CONCURRENT_TRANSACTIONS"
    assert code_of(lambda: here.end(producer, version=TV0, connection=3)) == "PRODUCER_FENCED"
    here.log.release()


@pytest.mark.parametrize("resumes", [True, False])
async def test_a_producer_that_starts_anew_may_use_any_connection(resumes: bool) -> None:
    here, producer = await story(2)
    anew = here.init(producer if resumes else None)
    assert here.add(anew, A, connection=0) is None
    assert here.end(anew, version=TV0, connection=0) == anew


async def test_a_producer_that_asks_for_its_epoch_again_starts_anew() -> None:
    """KIP-360: the same epoch, for the answer was lost."""
    here, producer = await story(2)
    resumed = here.init(producer)
    here.add(resumed, A, connection=9)
    here.end(resumed, version=TV0, connection=9)
    here.mark()
    assert here.init(producer) == resumed
    assert here.add(resumed, A, connection=5) is None


async def test_after_a_failover_every_connection_is_new() -> None:
    here, producer = await story(5)
    await here.load()
    assert here.end(producer, version=TV0, connection=0) == producer


@pytest.mark.parametrize("stranger", [Producer(7, 0), Producer(FIRST_ID, 9)])
async def test_strangers_do_not_weaken_the_guard(stranger: Producer) -> None:
    """A zombie on a newer connection is refused for its epoch, and must not put the guard out."""
    here, producer = await story(5)
    with pytest.raises(KafkaError):
        here.end(stranger, version=TV0, connection=99)
    with pytest.raises(KafkaError):
        here.add(stranger, A, connection=99)
    assert code_of(lambda: here.end(producer, version=TV0, connection=STALLED)) == (
        "PRODUCER_FENCED"
    )
    assert here.end(producer, version=TV0, connection=RETRIED) == producer


async def test_unknown_ids_take_no_memory() -> None:
    here = await Transactions().load()
    for number in range(100):
        with pytest.raises(KafkaError):
            here.coordinator.add_partitions(
                f"unknown{number}", Producer(7, 0), [A], connection=number
            )
    assert not here.shard.ledger.connections._newest


async def test_what_expires_is_forgotten() -> None:
    here = await Transactions(id_expiration_ms=1000).load()
    producer = here.ongoing(A, version=TV0)
    here.end(producer, version=TV0)
    here.mark()
    assert here.shard.ledger.connections._newest
    here.time.pass_ms(1000)
    await here.coordinator.expire()
    assert not here.shard.ledger.connections._newest


async def test_the_newer_protocol_and_leaders_are_exempt() -> None:
    """Their epochs tell one transaction from the next."""
    here = await Transactions().load()
    producer = here.ongoing(A)
    here.add(producer, B, connection=5)
    after = here.end(producer, version=TV2, connection=1)
    here.mark()
    assert here.end(producer, version=TV2, connection=0) == after
    assert here.lead(after, A) is None


async def test_another_epoch_has_connections_of_its_own() -> None:
    """A client that goes back from the newer protocol, on a connection that was there before."""
    here = await Transactions().load()
    producer = here.ongoing(A)
    here.add(producer, B, connection=5)
    after = here.end(producer)
    here.mark()
    assert here.add(after, A, connection=1) is None


async def test_a_wait_for_markers_does_not_hide_an_older_connection() -> None:
    """It is checked again on waking (KIP-609)."""
    here = await Transactions(version=1, wait_ms=100).load()
    producer = here.ongoing(A, version=TV0)
    here.end(producer, version=TV0, connection=1)
    stalled = here.add(producer, A, connection=1)
    retried = here.add(producer, B, connection=2)
    here.mark()
    with pytest.raises(KafkaError) as refused:
        await stalled
    assert refused.value.code is ErrorCode.PRODUCER_FENCED
    assert await retried is None
    assert here.txn.partitions == {B}
