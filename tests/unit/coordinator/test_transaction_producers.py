"""InitProducerId at the coordinator: KIP-98, KIP-360, and the end of a producer id's epochs."""

import asyncio

import pytest

from barnabas.coordinator.transaction.metadata import LAST_CLIENT_EPOCH, TV0, TV2, Producer
from barnabas.coordinator.transaction.producers import InitProducerId
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.coordinator.harness import code_of
from tests.unit.coordinator.transactions import (
    EXHAUSTED,
    FIRST_ID,
    ID,
    TIMEOUT_MS,
    A,
    Transactions,
    transaction,
)

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
OLD = EXHAUSTED.producer_id


async def test_fresh_id_begins_at_epoch_zero_and_every_init_bumps_it() -> None:
    here = await Transactions().load()
    assert here.init() == Producer(FIRST_ID, 0)
    assert here.init() == Producer(FIRST_ID, 1)
    assert here.state == "Empty"
    assert here.txn.timeout_ms == TIMEOUT_MS


async def test_the_latest_timeout_counts() -> None:
    here = await Transactions().load()
    here.init()
    here.init(timeout_ms=7)
    assert here.txn.timeout_ms == 7


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_timeout_out_of_range_is_refused(timeout_ms: int) -> None:
    """As in Kafka 4.4: over transaction.max.timeout.ms, or <= 0."""
    here = await Transactions().load()
    assert code_of(lambda: here.init(timeout_ms=timeout_ms)) == "INVALID_TRANSACTION_TIMEOUT"
    assert here.init(timeout_ms=900_000)


async def test_timeout_out_of_range_is_refused_by_any_broker() -> None:
    """As in Kafka, which checks the timeout before it looks for the coordinator."""
    assert code_of(lambda: Transactions().init(timeout_ms=0)) == "INVALID_TRANSACTION_TIMEOUT"
    assert code_of(lambda: Transactions().init()) == "NOT_COORDINATOR"


async def test_an_empty_transactional_id_is_invalid() -> None:
    here = await Transactions().load()
    assert (
        code_of(lambda: here.coordinator.init_producer_id(InitProducerId("", 0, None, "host")))
        == "INVALID_REQUEST"
    )


# -- KIP-360 -------------------------------------------------------------------------------------


async def test_resuming_producer_gets_next_epoch_and_same_answer_again() -> None:
    here = await Transactions().load()
    producer = here.init()
    resumed = here.init(producer)
    assert resumed == Producer(FIRST_ID, 1)
    written = here.log.record_count
    assert here.init(producer) == resumed, "the answer was lost: the same once more, no bump"
    assert here.log.record_count == written + 1
    assert here.init(resumed) == Producer(FIRST_ID, 2)
    assert code_of(lambda: here.init(producer)) == "PRODUCER_FENCED", "two epochs ago"


async def test_plain_init_fences_producer_that_resumes() -> None:
    """A newer process has the id: the old one must not get its epoch (KIP-360)."""
    here = await Transactions().load()
    producer = here.init()
    assert here.init() == Producer(FIRST_ID, 1)
    assert code_of(lambda: here.init(producer)) == "PRODUCER_FENCED"


async def test_a_foreign_producer_id_is_fenced() -> None:
    here = await Transactions().load()
    producer = here.init()
    stranger = Producer(producer.producer_id + 5, producer.epoch)
    assert code_of(lambda: here.init(stranger)) == "PRODUCER_FENCED"
    future = Producer(producer.producer_id, producer.epoch + 1)
    assert code_of(lambda: here.init(future)) == "PRODUCER_FENCED"


async def test_resume_of_unknown_id_gets_fresh_producer_id() -> None:
    """After UNKNOWN_PRODUCER_ID or expiry, regardless of the epoch in the request."""
    here = await Transactions().load()
    assert here.init(Producer(5, 5)) == Producer(FIRST_ID, 0)


# -- the end of epochs ---------------------------------------------------------------------------


async def test_the_last_epoch_is_given_and_then_the_producer_id_rotates() -> None:
    """As in Kafka 4.4: a client never holds 32767."""
    here = await Transactions().write(transaction(epoch=LAST_CLIENT_EPOCH - 1)).load()
    assert here.init() == EXHAUSTED
    assert here.init() == Producer(FIRST_ID, 0)
    assert here.txn.last_epoch == -1


async def test_resumed_rotation_repeats_its_answer() -> None:
    """The answer with the fresh id was lost: the old id and epoch are still known."""
    here = await Transactions().write(transaction(epoch=LAST_CLIENT_EPOCH)).load()
    assert here.init(EXHAUSTED) == Producer(FIRST_ID, 0)
    assert here.init(EXHAUSTED) == Producer(FIRST_ID, 0)
    assert here.init(Producer(FIRST_ID, 0)) == Producer(FIRST_ID, 1)
    assert code_of(lambda: here.init(EXHAUSTED)) == "PRODUCER_FENCED"


async def test_older_epoch_of_previous_producer_id_is_fenced() -> None:
    """Epoch 0 of the old id and of the fresh one are not the same."""
    here = await Transactions().write(transaction(epoch=LAST_CLIENT_EPOCH)).load()
    here.init(EXHAUSTED)
    assert code_of(lambda: here.init(Producer(OLD, 0))) == "PRODUCER_FENCED"


async def test_resumed_rotation_repeats_its_answer_after_failover() -> None:
    """KAFKA-20357: the last epoch and the previous id are in the log."""
    here = await Transactions().write(transaction(epoch=LAST_CLIENT_EPOCH)).load()
    rotated = here.init(EXHAUSTED)
    await here.load()
    assert here.init(EXHAUSTED) == rotated


async def test_rotation_by_plain_init_fences_old_producer() -> None:
    here = await Transactions().write(transaction(epoch=LAST_CLIENT_EPOCH)).load()
    here.init()
    assert code_of(lambda: here.init(EXHAUSTED)) == "PRODUCER_FENCED"


async def test_bump_to_last_epoch_repeats_its_answer() -> None:
    """Kafka throws IllegalStateException here: the id is exhausted, but the answer is known."""
    here = await Transactions().write(transaction(epoch=LAST_CLIENT_EPOCH - 1)).load()
    before = Producer(OLD, LAST_CLIENT_EPOCH - 1)
    assert here.init(before) == EXHAUSTED
    assert here.init(before) == EXHAUSTED
    assert code_of(lambda: here.init(Producer(OLD, 7))) == "PRODUCER_FENCED"


# -- the producer before --------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("epoch", [0, 41, LAST_CLIENT_EPOCH])
async def test_an_open_transaction_is_aborted_and_its_producer_fenced(
    version: int, epoch: int
) -> None:
    """KIP-98, KAFKA-19367, 18660, 20090: also with the last epoch of all."""
    log = transaction(
        ONGOING, epoch, partitions=frozenset({A}), start_ms=0, timeout_ms=900_000, last_epoch=3
    )
    here = await Transactions(version=version).write(log).load()
    assert code_of(here.init) == "CONCURRENT_TRANSACTIONS"
    assert here.state == "PrepareAbort"
    (markers,) = here.sent
    assert (markers.producer.epoch, markers.committed) == (epoch + 1, False)
    assert markers.transaction_version == version, "the cluster's, not the client's"
    assert code_of(here.init) == "CONCURRENT_TRANSACTIONS", "until the markers are written"
    here.mark()
    assert here.state == "CompleteAbort"
    fenced = Producer(OLD, epoch)
    exhausted = epoch == LAST_CLIENT_EPOCH
    if version < TV2:
        assert code_of(lambda: here.init(fenced)) == "PRODUCER_FENCED", "it cannot come back"
        after = Producer(FIRST_ID, 0) if exhausted else Producer(OLD, epoch + 2)
    else:
        after = Producer(FIRST_ID, 1) if exhausted else Producer(OLD, epoch + 2)
        assert here.init(fenced) == after._replace(epoch=after.epoch - 1), "as if it had aborted"
    assert here.init() == after
    assert code_of(lambda: here.lead(fenced, A)) == (
        "INVALID_PRODUCER_ID_MAPPING" if exhausted else "PRODUCER_FENCED"
    )


async def test_kafka_9666_refused_fencing_uses_up_no_epoch() -> None:
    """InitProducerId is retried while the log is below min.insync.replicas."""
    here = await Transactions().load()
    producer = here.ongoing()
    here.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    for _ in range(5):
        assert code_of(here.init) == "COORDINATOR_NOT_AVAILABLE"
    assert here.txn.producer == producer
    assert here.state == "Ongoing"
    here.log.refusal = None
    assert here.end(producer) == Producer(FIRST_ID, 1), "no producer was fenced"


async def test_kafka_9666_refused_init_uses_up_no_epoch() -> None:
    here = await Transactions().load()
    producer = here.init()
    here.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert code_of(here.init) == "COORDINATOR_NOT_AVAILABLE"
    here.log.refusal = None
    assert here.init() == Producer(producer.producer_id, 1)


async def test_client_that_names_epoch_32767_is_fenced() -> None:
    """A client may name 32767 after a fencing of 32766: a bump of it would not fit the log."""
    done = transaction(TransactionState.COMPLETE_ABORT, LAST_CLIENT_EPOCH + 1)
    here = await Transactions().write(done).load()
    forged = Producer(OLD, LAST_CLIENT_EPOCH + 1)
    for version in (TV0, TV2):
        assert (
            code_of(lambda v=version: here.end(forged, commits=False, version=v))
            == "PRODUCER_FENCED"
        )
    assert code_of(lambda: here.lead(forged, A)) == "PRODUCER_FENCED"
    assert code_of(lambda: here.add(forged, A)) == "PRODUCER_FENCED"
    assert code_of(lambda: here.verify(forged, A)) == "PRODUCER_FENCED"


async def test_repeated_abort_at_last_epoch_returns_next_producer_id() -> None:
    """A TV2 client aborts a transaction at epoch 32766 that the coordinator has aborted before."""
    here = (
        await Transactions()
        .write(transaction(ONGOING, LAST_CLIENT_EPOCH, partitions=frozenset({A}), start_ms=0))
        .load()
    )
    await here.sweep()
    here.mark()
    assert here.txn.producer == Producer(FIRST_ID, 0)
    assert here.end(EXHAUSTED, commits=False) == Producer(FIRST_ID, 0)


async def test_repeated_abort_at_last_epoch_is_fenced_by_older_cluster() -> None:
    """An abort by an older cluster chooses no next id; a TV2 client that repeats it must not get
    32767."""
    log = transaction(ONGOING, LAST_CLIENT_EPOCH, partitions=frozenset({A}), start_ms=0)
    here = await Transactions(version=1).write(log).load()
    await here.sweep()
    here.mark()
    assert here.txn.epoch == LAST_CLIENT_EPOCH + 1
    assert code_of(lambda: here.end(EXHAUSTED, commits=False)) == "PRODUCER_FENCED"


# -- ids that have to be fetched -----------------------------------------------------------------


async def test_init_waits_for_fetch_of_producer_ids() -> None:
    here = await Transactions().load()
    here.ids.dry = True
    assert await here.init() == Producer(FIRST_ID, 0)
    assert here.ids.refills == 1


async def test_concurrent_inits_get_different_producer_ids() -> None:
    here = await Transactions().load()
    here.ids.dry = True
    first = here.init()
    assert isinstance(first, asyncio.Future)
    other = here.coordinator.init_producer_id(InitProducerId("other", TIMEOUT_MS, None, "host"))
    assert {(await first).producer_id, (await other).producer.producer_id} == {
        FIRST_ID,
        FIRST_ID + 1,
    }


async def test_end_txn_at_last_epoch_waits_for_fetch_of_producer_ids() -> None:
    here = await Transactions().write(transaction(epoch=LAST_CLIENT_EPOCH)).load()
    here.lead(EXHAUSTED, A)
    here.ids.dry = True
    assert await here.end(EXHAUSTED) == Producer(FIRST_ID, 0)
    assert here.coordinator.describe(ID).next_producer_id == FIRST_ID
