"""The guard of older connections: a stalled EndTxn never ends a later transaction (KAFKA-17754)."""

from collections.abc import Callable

import pytest

from barnabas.coordinator.transaction.metadata import TV0, TV2, Producer
from barnabas.coordinator.transaction.partitions import AddPartitions
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.coordinator.harness import code_of
from tests.unit.coordinator.transactions import FIRST_ID, ID, A, B, Transactions

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
    """Return a transaction whose EndTxn stalled on a connection, after `until` later steps of its
    producer."""
    here = await Transactions(version=1, fences_older_connections=guarded).load()
    producer = here.init()
    here.add(producer, A, connection=STALLED)
    for _, step in STORY[:until]:
        step(here, producer)
    return here, producer


@pytest.mark.parametrize("until", range(1, len(STORY) + 1))
async def test_stalled_end_txn_is_fenced_after_every_later_step(until: int) -> None:
    here, producer = await story(until)
    before, markers = here.txn, list(here.sent)
    stalled = code_of(lambda: here.end(producer, version=TV0, connection=STALLED))
    assert stalled == "PRODUCER_FENCED"
    assert code_of(lambda: here.add(producer, B, connection=STALLED)) == "PRODUCER_FENCED"
    assert (here.txn, here.sent) == (before, markers)
    for _, step in STORY[until:]:
        step(here, producer)


async def test_stalled_end_txn_without_guard_commits_next_transaction() -> None:
    """Apache Kafka has this flaw; the guard prevents it."""
    here, producer = await story(3, guarded=False)
    assert here.end(producer, version=TV0, connection=STALLED) == producer
    assert here.state == "PrepareCommit"


async def test_end_txn_is_accepted_if_no_newer_connection_was_used() -> None:
    here, producer = await story(0)
    assert here.end(producer, version=TV0, connection=STALLED) == producer


async def test_client_that_reconnects_often_is_never_refused() -> None:
    here = await Transactions(version=1).load()
    producer = here.init()
    for connection in range(1, 20):
        here.add(producer, A, connection=connection)
        here.add(producer, B, connection=connection)
        here.end(producer, version=TV0, connection=connection)
        here.mark()
        assert here.end(producer, version=TV0, connection=connection + 1) == producer


async def test_retry_refused_with_concurrent_transactions_still_fences_older_connection() -> None:
    """The retry came while the step or its markers were being written."""
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
async def test_init_producer_id_allows_any_connection(resumes: bool) -> None:
    here, producer = await story(2)
    anew = here.init(producer if resumes else None)
    assert here.add(anew, A, connection=0) is None
    assert here.end(anew, version=TV0, connection=0) == anew


async def test_repeated_init_producer_id_allows_any_connection() -> None:
    """KIP-360: the answer was lost, and the producer gets the same epoch again."""
    here, producer = await story(2)
    resumed = here.init(producer)
    here.add(resumed, A, connection=9)
    here.end(resumed, version=TV0, connection=9)
    here.mark()
    assert here.init(producer) == resumed
    assert here.add(resumed, A, connection=5) is None


async def test_failover_allows_any_connection() -> None:
    here, producer = await story(5)
    await here.load()
    assert here.end(producer, version=TV0, connection=0) == producer


@pytest.mark.parametrize("stranger", [Producer(7, 0), Producer(FIRST_ID, 9)])
async def test_refused_producer_does_not_change_newest_connection(stranger: Producer) -> None:
    """A zombie on a newer connection is refused for its epoch, and must not replace the connection
    of the current producer."""
    here, producer = await story(5)
    with pytest.raises(KafkaError):
        here.end(stranger, version=TV0, connection=99)
    with pytest.raises(KafkaError):
        here.add(stranger, A, connection=99)
    assert code_of(lambda: here.end(producer, version=TV0, connection=STALLED)) == (
        "PRODUCER_FENCED"
    )
    assert here.end(producer, version=TV0, connection=RETRIED) == producer


async def test_unknown_transactional_ids_store_no_connection() -> None:
    here = await Transactions().load()
    for number in range(100):
        with pytest.raises(KafkaError):
            here.coordinator.add_partitions(
                AddPartitions(f"unknown{number}", Producer(7, 0), [A], TV0, number)
            )
    assert not here.table.ids


async def test_expired_id_forgets_its_connection() -> None:
    here = await Transactions(id_expiration_ms=1000).load()
    producer = here.ongoing(A, version=TV0)
    here.end(producer, version=TV0)
    here.mark()
    assert here.table.ids[ID].latest_use is not None
    here.time.pass_ms(1000)
    await here.coordinator.expire()
    assert not here.table.ids


async def test_newer_protocol_and_leaders_are_not_guarded() -> None:
    """Each of their transactions has an epoch of its own."""
    here = await Transactions().load()
    producer = here.ongoing(A)
    here.add(producer, B, connection=5)
    after = here.end(producer, version=TV2, connection=1)
    here.mark()
    assert here.end(producer, version=TV2, connection=0) == after
    assert here.lead(after, A) is None


async def test_connections_are_compared_within_one_epoch() -> None:
    """A client returns from the newer protocol to the older one, on an older connection."""
    here = await Transactions().load()
    producer = here.ongoing(A)
    here.add(producer, B, connection=5)
    after = here.end(producer)
    here.mark()
    assert here.add(after, A, connection=1) is None


async def test_request_on_older_connection_is_fenced_after_its_wait() -> None:
    """A woken request is decided from the beginning, with the check of its connection (KIP-609)."""
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
