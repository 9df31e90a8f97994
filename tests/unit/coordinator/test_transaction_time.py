"""Time and fail-over: timeouts of transactions, loads, and the expiry of transactional ids."""

import asyncio

import pytest

from barnabas.coordinator.transaction import producers
from barnabas.coordinator.transaction.metadata import LAST_CLIENT_EPOCH, TV0, TV2, Producer
from barnabas.coordinator.transaction.partitions import AddPartitions
from barnabas.coordinator.transaction.producers import InitProducerId
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.coordinator.harness import WALL_MS, code_of
from tests.unit.coordinator.transactions import (
    EXHAUSTED,
    FIRST_ID,
    ID,
    TIMEOUT_MS,
    A,
    B,
    Transactions,
    transaction,
)

ONGOING = TransactionState.ONGOING
HOUR_MS = 3_600_000


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_timed_out_transaction_is_aborted_and_fenced(version: int) -> None:
    """The producer is fenced too (KIP-98), by the cluster's transaction.version."""
    here = await Transactions(version=version).load()
    producer = here.ongoing(A, B, version=TV0)
    here.time.pass_ms(TIMEOUT_MS - 1)
    await here.sweep()
    assert here.state == "Ongoing"
    here.time.pass_ms(1)
    await here.sweep()
    assert here.state == "PrepareAbort"
    (markers,) = here.sent
    assert (markers.committed, markers.partitions) == (False, {A, B})
    assert markers.producer == Producer(producer.producer_id, producer.epoch + 1)
    assert markers.transaction_version == version
    here.mark()
    assert code_of(lambda: here.end(producer, version=TV0)) == "PRODUCER_FENCED"
    await here.sweep()
    assert len(here.sent) == 1


async def test_transaction_is_overdue_from_its_timeout_until_it_is_decided() -> None:
    here = await Transactions().load()
    here.ongoing(A)
    here.time.pass_ms(TIMEOUT_MS - 1)
    assert here.coordinator.overdue() == 0
    here.time.pass_ms(1)
    assert here.coordinator.overdue() == 1
    await here.sweep()
    assert here.coordinator.overdue() == 0


async def test_added_partition_does_not_extend_timeout() -> None:
    here = await Transactions().load()
    producer = here.ongoing(A)
    here.time.pass_ms(TIMEOUT_MS - 1)
    here.lead(producer, B)
    assert here.left_ms == 1
    here.time.pass_ms(1)
    await here.sweep()
    assert here.state == "PrepareAbort"


async def test_next_transaction_has_whole_timeout() -> None:
    here = await Transactions().load()
    producer = here.ongoing()
    here.time.pass_ms(TIMEOUT_MS - 1)
    after = here.end(producer)
    here.mark()
    assert here.left_ms is None
    here.lead(after, A)
    here.time.pass_ms(TIMEOUT_MS - 1)
    await here.sweep()
    assert here.state == "Ongoing"


async def test_a_jump_of_the_wall_clock_aborts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    here = await Transactions().load()
    here.ongoing()
    monkeypatch.setattr(here.time, "now_ms", lambda: WALL_MS + 1000 * HOUR_MS)
    await here.sweep()
    assert here.state == "Ongoing"
    monkeypatch.setattr(here.time, "now_ms", lambda: WALL_MS - 1000 * HOUR_MS)
    here.time.pass_ms(TIMEOUT_MS)
    await here.sweep()
    assert here.state == "PrepareAbort"


@pytest.mark.parametrize(
    ("age_ms", "left_ms"),
    [(0, TIMEOUT_MS), (20_000, 40_000), (TIMEOUT_MS, 0), (HOUR_MS, 0), (-HOUR_MS, TIMEOUT_MS)],
)
async def test_loaded_transaction_keeps_its_remaining_time(age_ms: int, left_ms: int) -> None:
    """The wall clock may be an hour off: the time left is at least 0, at most the whole timeout."""
    began = transaction(ONGOING, partitions=frozenset({A}), start_ms=WALL_MS - age_ms)
    here = await Transactions().write(began).load()
    assert here.left_ms == left_ms
    here.time.pass_ms(max(left_ms - 1, 0))
    await here.sweep()
    assert here.state == ("Ongoing" if left_ms else "PrepareAbort")
    here.time.pass_ms(1)
    await here.sweep()
    assert here.state == "PrepareAbort"


async def test_refused_abort_is_repeated_by_next_sweep() -> None:
    here = await Transactions().load()
    producer = here.ongoing()
    here.time.pass_ms(TIMEOUT_MS)
    here.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    await here.sweep()
    assert here.txn.producer == producer
    here.log.refusal = None
    await here.sweep()
    assert here.txn.epoch == producer.epoch + 1, "one epoch, however often it was tried"


async def test_timeout_does_not_overtake_pending_decision() -> None:
    here = await Transactions().load()
    producer = here.ongoing()
    here.log.held = True
    answer = here.end(producer)
    here.time.pass_ms(TIMEOUT_MS)
    await here.sweep()
    here.log.release()
    assert here.state == "PrepareCommit"
    with pytest.raises(KafkaError, match="not committed yet"):
        await answer


async def test_timeout_at_last_epoch_rotates_producer_id() -> None:
    """KAFKA-18660, 20090: 32767 is written, given to no client, and the id rotates."""
    log = transaction(ONGOING, LAST_CLIENT_EPOCH, partitions=frozenset({A}), start_ms=0)
    here = await Transactions().write(log).load()
    await here.sweep()
    assert here.sent[0].producer == Producer(EXHAUSTED.producer_id, LAST_CLIENT_EPOCH + 1)
    here.mark()
    assert here.txn.producer == Producer(FIRST_ID, 0)


async def test_timeout_at_last_epoch_fetches_id_without_delaying_others() -> None:
    """With TV2 the abort chooses the next producer id; other transactions do not wait for it."""
    log = transaction(ONGOING, LAST_CLIENT_EPOCH, partitions=frozenset({A}), start_ms=0)
    here = await Transactions().write(log).load()
    other = here.coordinator.init_producer_id(InitProducerId("other", TIMEOUT_MS, None, "host"))
    here.coordinator.add_partitions(AddPartitions("other", other.producer, [A], TV2))
    here.time.pass_ms(TIMEOUT_MS)
    here.ids.dry = True
    await here.sweep()
    assert here.coordinator.describe("other").state is TransactionState.PREPARE_ABORT
    for _ in range(5):
        await asyncio.sleep(0)
    assert here.state == "PrepareAbort"


async def test_one_forged_epoch_does_not_stop_the_sweep_for_others() -> None:
    here = (
        await Transactions()
        .write(transaction(TransactionState.COMPLETE_ABORT, LAST_CLIENT_EPOCH + 1))
        .load()
    )
    forged = Producer(EXHAUSTED.producer_id, LAST_CLIENT_EPOCH + 1)
    assert code_of(lambda: here.lead(forged, A)) == "PRODUCER_FENCED"
    other = here.coordinator.init_producer_id(InitProducerId("other", TIMEOUT_MS, None, "host"))
    here.coordinator.add_partitions(AddPartitions("other", other.producer, [A], TV2))
    here.time.pass_ms(TIMEOUT_MS)
    await here.sweep()
    assert here.coordinator.describe("other").state is TransactionState.PREPARE_ABORT


# -- loads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False])
async def test_a_decided_transaction_is_rolled_forward_after_a_load(commits: bool) -> None:
    here = await Transactions().load()
    producer = here.ongoing(A, B)
    after = here.end(producer, commits=commits)
    await here.load()
    assert here.sent[1] == here.sent[0]
    assert code_of(lambda: here.lead(after, A)) == "CONCURRENT_TRANSACTIONS"
    here.mark()
    assert here.state == ("CompleteCommit" if commits else "CompleteAbort")


async def test_decided_transaction_without_partitions_is_completed_after_load() -> None:
    log = transaction(TransactionState.PREPARE_ABORT, 4, start_ms=0)
    here = await Transactions().write(log).load()
    here.time.pass_ms(0)
    assert (here.state, here.sent) == ("CompleteAbort", [])


async def test_an_open_transaction_goes_on_after_a_load() -> None:
    here = await Transactions().load()
    producer = here.ongoing(A, B)
    await here.load()
    assert here.txn.partitions == {A, B}
    assert here.end(producer) == Producer(FIRST_ID, 1)


async def test_an_epoch_that_goes_back_takes_the_partition_offline() -> None:
    """Kafka logs the error and serves part of the state; a log like this cannot be trusted."""
    log = Transactions().write(transaction(epoch=5), transaction(epoch=4))
    here = await log.load()
    assert code_of(here.init) == "NOT_COORDINATOR"
    (fault,) = here.faults
    assert str(fault) == "epoch 4 of x stands after 5"


async def test_another_producer_id_may_begin_at_epoch_zero() -> None:
    here = Transactions().write(transaction(epoch=5), transaction(epoch=0, producer_id=5000))
    await here.load()
    assert here.init() == Producer(5000, 1)


@pytest.mark.parametrize("marker", [True, False])
async def test_transactional_record_or_marker_in_transaction_log_raises(marker: bool) -> None:
    here = await Transactions().load()
    if marker:
        with pytest.raises(Exception, match="a marker"):
            here.shard.replay_marker(1, 0, committed=True)
    else:
        with pytest.raises(Exception, match="was written in a transaction"):
            here.shard.replay(here.shard.decode(*_record()), 5)  # type: ignore[arg-type]


def _record() -> tuple[bytes, bytes | None]:
    return Transactions()._new_shard(0, 0).encode(TransactionRecord(ID, transaction(), True))


# -- expiry --------------------------------------------------------------------------------------


async def test_idle_transactional_id_expires() -> None:
    """After transactional.id.expiration.ms; KAFKA-18019: both old instances get error 49."""
    here = await Transactions(id_expiration_ms=1000).load()
    producer, after = here.completed()
    here.time.pass_ms(999)
    await here.coordinator.expire()
    assert here.state == "CompleteCommit"
    here.time.pass_ms(1)
    await here.coordinator.expire()
    assert code_of(lambda: here.txn) == "TRANSACTIONAL_ID_NOT_FOUND"
    for each in (producer, after):
        assert code_of(lambda p=each: here.lead(p, A)) == "INVALID_PRODUCER_ID_MAPPING"
    await here.load()
    assert list(here.coordinator.transactions()) == []
    assert here.init().producer_id != producer.producer_id


@pytest.mark.parametrize(
    "state", [ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT]
)
async def test_id_with_unfinished_transaction_never_expires(state: TransactionState) -> None:
    log = transaction(state, partitions=frozenset({A}), start_ms=WALL_MS)
    here = await Transactions(id_expiration_ms=1000).write(log).load()
    here.time.pass_ms(HOUR_MS)
    await here.coordinator.expire()
    assert here.txn.state is state


async def test_expiring_id_refuses_new_transaction() -> None:
    here = await Transactions(id_expiration_ms=1000, max_timeout_ms=900_000).load()
    producer = here.init()
    here.time.pass_ms(1000)
    here.log.held = True
    answer = here.runtime.write(0, "", producers.expire)
    assert isinstance(answer, asyncio.Future)
    assert code_of(lambda: here.lead(producer, A)) == "CONCURRENT_TRANSACTIONS"
    here.log.release()
    assert await answer == 1
    assert code_of(lambda: here.lead(producer, A)) == "INVALID_PRODUCER_ID_MAPPING"


async def test_id_with_pending_step_does_not_expire() -> None:
    """A step of the id is being written when the sweep runs."""
    here = await Transactions(id_expiration_ms=1000).load()
    producer = here.init()
    here.time.pass_ms(1000)
    here.log.held = True
    answer = here.lead(producer, A)
    await here.coordinator.expire()
    here.log.release()
    await answer
    assert here.state == "Ongoing"


async def test_refused_tombstones_expire_nothing() -> None:
    here = await Transactions(id_expiration_ms=1000).load()
    producer = here.init()
    here.time.pass_ms(1000)
    here.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    await here.coordinator.expire()
    here.log.refusal = None
    assert here.lead(producer, A) is None


async def test_many_ids_expire_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "EXPIRED_AT_ONCE", 2)
    here = await Transactions(id_expiration_ms=1000).load()
    for each in "abcde":
        here.coordinator.init_producer_id(InitProducerId(each, TIMEOUT_MS, None, "host"))
    batches = len(here.log.batches)
    here.time.pass_ms(1000)
    await here.coordinator.expire()
    assert list(here.coordinator.transactions()) == []
    assert len(here.log.batches) == batches + 3


async def test_states_counts_ids_by_state() -> None:
    here = await Transactions().load()
    here.completed()
    here.coordinator.init_producer_id(InitProducerId("other", TIMEOUT_MS, None, "host"))
    assert here.coordinator.states() == {"CompleteCommit": 1, "Empty": 1}
