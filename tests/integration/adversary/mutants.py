"""Brokers with one fault each, for the checker to find: bugs of other brokers, and possible ones.

Each is a patch of a class or module of the broker, installed by `mutant_broker.py` only.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from barnabas.broker.handlers import metadata, produce
from barnabas.broker.replication.coordinator_log import LedPartition
from barnabas.broker.transactions import marker_sender
from barnabas.broker.transactions.marker_sender import MarkerSender
from barnabas.broker.transactions.marker_writer import MarkerWriter
from barnabas.broker.transactions.verifier import TransactionVerifier
from barnabas.coordinator.decision import Decision, Instant
from barnabas.coordinator.group.coordinator import GroupShard
from barnabas.coordinator.group.offsets import Offsets
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.transaction import ending
from barnabas.coordinator.transaction.metadata import (
    NO_EPOCH,
    NextClient,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.coordinator.transaction.repeated import RepeatedStep
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.coordinator.transaction.table import TransactionTable
from barnabas.coordinator.transaction.transactional_id import TransactionalId
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.metadata import MetadataResponseTopic
from barnabas.protocol.records.batch import NO_PRODUCER_EPOCH
from barnabas.storage.cleaning import compaction
from barnabas.storage.cleaning.compaction import CleanedTransactions
from barnabas.storage.log.log import Log
from barnabas.storage.producers import rules as producer_rules
from barnabas.storage.producers import state as producer_state
from barnabas.storage.producers.state import ProducerStateManager

HIGH_EPOCH: Final = 32_760
"""The first epoch of producer ids that are soon exhausted."""


def unverified() -> None:
    """The first batch of a transaction is appended without verification (KAFKA-14402)."""
    TransactionVerifier.verifies = property(lambda _: False)  # type: ignore[assignment,method-assign]


def marker_refused_again() -> None:
    """A repeated marker is refused, even where nothing is open (KAFKA-19999)."""
    MarkerWriter._outcome_of = (  # type: ignore[method-assign]
        lambda _writer, error, _write: error.code
    )

    def check(entry: Any, epoch: int) -> None:
        if epoch == entry.producer_epoch:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)

    producer_rules._check_used_up = check


def endless_epochs() -> None:
    """Epochs are never exhausted (KAFKA-19367)."""
    high_epochs()
    TransactionMetadata.exhausted = property(lambda _: False)  # type: ignore[assignment,method-assign]


def high_epochs() -> None:
    """No fault: producer ids start a few transactions before their last epoch."""
    next_client = TransactionMetadata.next_client

    def high(txn: TransactionMetadata, expected: int | None) -> NextClient:
        client = next_client(txn, expected)
        if txn.epoch != NO_EPOCH:
            return client
        return client._replace(producer=client.producer._replace(epoch=HIGH_EPOCH))

    TransactionMetadata.next_client = high  # type: ignore[method-assign]


def spent_epochs() -> None:
    """An epoch is raised although the append of its record failed (KAFKA-9666)."""
    high_epochs()
    refused_fencing()
    write = TransactionTable.transition

    def spending(
        table: TransactionTable,
        entry: TransactionalId,
        target: TransactionMetadata,
        answer: object,
        now: Instant,
        event: str,
        then: Callable[[Instant], Any] | None = None,
        refused: Callable[[Instant], Any] | None = None,
        **options: Any,
    ) -> Any:
        def spent(now: Instant) -> Any:
            known = entry.txn
            if known is not None and known.producer_id == target.producer_id:
                entry.txn = known._replace(epoch=target.epoch)
            return Decision(None) if refused is None else refused(now)

        fences = target.state in (TransactionState.EMPTY, TransactionState.PREPARE_ABORT)
        after = spent if fences else refused
        return write(table, entry, target, answer, now, event, then, after, **options)

    TransactionTable.transition = spending  # type: ignore[method-assign]


def refused_fencing() -> None:
    """No fault: fencing succeeds at the fifth attempt, as if too few replicas were in sync
    before."""
    write, append = TransactionTable.transition, LedPartition.append
    tries: Counter[str] = Counter()
    refuses = False

    def counting(
        table: TransactionTable,
        entry: TransactionalId,
        target: TransactionMetadata,
        *others: Any,
        **options: Any,
    ) -> Any:
        nonlocal refuses
        if target.state is TransactionState.PREPARE_ABORT and "fenced" in others[2]:
            tries[target.transactional_id] += 1
            refuses = tries[target.transactional_id] % 5 != 0
        else:
            refuses = False
        return write(table, entry, target, *others, **options)

    def refusing(log: LedPartition, *what: Any, **options: Any) -> int:
        nonlocal refuses
        if refuses and log._partition.topic == "__transaction_state":
            refuses = False
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return append(log, *what, **options)

    TransactionTable.transition = counting  # type: ignore[method-assign]
    LedPartition.append = refusing  # type: ignore[method-assign]


def late_offsets() -> None:
    """WriteTxnMarkers is answered before the committed offsets are visible (KAFKA-17507)."""

    def replay(shard: GroupShard, producer_id: int, _epoch: int, committed: bool) -> tuple[()]:
        offsets = shard.state.offsets
        for record in offsets.pending.end(producer_id, committed):
            if record is not None:
                assert record.committed is not None
                keep = partial(offsets._keep, *record[:3], record.committed)
                asyncio.get_running_loop().call_later(0.03, keep)
        return ()

    GroupShard.replay_marker = replay  # type: ignore[method-assign]


def forgetful_coordinator() -> None:
    """Open transactions are kept in memory only (Redpanda 6018)."""
    write = TransactionTable.transition

    def unwritten(
        table: TransactionTable,
        entry: TransactionalId,
        target: TransactionMetadata,
        answer: object,
        now: Instant,
        event: str,
        then: Callable[[Instant], Any] | None = None,
        refused: Callable[[Instant], Any] | None = None,
        **options: Any,
    ) -> Any:
        if target.state is not TransactionState.ONGOING:
            return write(table, entry, target, answer, now, event, then, refused, **options)
        table.replay(TransactionRecord(target.transactional_id, target, True))
        if then is not None:
            then(now)
        return Decision(answer)

    TransactionTable.transition = unwritten  # type: ignore[method-assign]
    # A step that repeats would write its record.
    RepeatedStep.again = lambda *_: None  # type: ignore[method-assign]


def window_of_one() -> None:
    """After a restart the broker has one batch of each producer, not five (librdkafka 4953)."""
    replay = ProducerStateManager.replay

    def short(producers: ProducerStateManager, data: Any, batches: Any) -> Any:
        aborted = replay(producers, data, batches)
        for _, header in batches:
            entry = producers.entry(header.producer_id)
            if entry is not None:
                producers.entries[entry.producer_id] = replace(entry, batches=entry.batches[-1:])
        return aborted

    ProducerStateManager.replay = short  # type: ignore[method-assign]
    ProducerStateManager.extend_windows = lambda *_: None  # type: ignore[assignment,method-assign]


def forgotten_sequences() -> None:
    """After a restart no sequences are known, and the next one is out of order (librdkafka
    3575)."""
    replay = ProducerStateManager.replay

    def forgetful(producers: ProducerStateManager, data: Any, batches: Any) -> Any:
        aborted = replay(producers, data, batches)
        for entry in list(producers):
            producers.entries[entry.producer_id] = replace(entry, batches=())
        return aborted

    ProducerStateManager.replay = forgetful  # type: ignore[method-assign]
    ProducerStateManager.extend_windows = lambda *_: None  # type: ignore[assignment,method-assign]


def short_memory() -> None:
    """The state of active producers expires (KAFKA-9144, KIP-360)."""
    check = producer_state.check_sequence  # type: ignore[attr-defined]
    expire = ProducerStateManager.expire

    def strict(entry: Any, epoch: int, sequence: int, *more: Any) -> None:
        if entry.producer_epoch == NO_PRODUCER_EPOCH and sequence > 0:
            raise KafkaError(ErrorCode.UNKNOWN_PRODUCER_ID)
        check(entry, epoch, sequence, *more)

    producer_state.check_sequence = strict  # type: ignore[attr-defined]
    ProducerStateManager.expire = (  # type: ignore[method-assign]
        lambda producers, now_ms, _: expire(producers, now_ms, 500)
    )


def inclusive_last_stable_offset() -> None:
    """Fetch also returns the record at the last stable offset (Redpanda 3036)."""

    def inclusive(log: Log) -> int:
        first = log.producers.first_unstable_offset
        return log.high_watermark if first is None else min(first + 1, log.high_watermark)

    Log.last_stable_offset = property(inclusive)  # type: ignore[assignment,method-assign]


def short_aborted_index() -> None:
    """The list of aborted transactions lacks the last one (KAFKA-5376)."""
    aborted = Log.aborted_transactions
    Log.aborted_transactions = (  # type: ignore[method-assign]
        lambda log, start, end: aborted(log, start, end)[:-1]
    )


def hasty_coordinator() -> None:
    """Coordinators serve before they have loaded their log (Redpanda 5090, KAFKA-9307)."""
    load = CoordinatorRuntime._load

    async def hasty(runtime: Any, index: int, hosted: Any) -> None:
        hosted.serving = True
        await asyncio.sleep(0.2)
        await load(runtime, index, hosted)

    CoordinatorRuntime._load = hasty  # type: ignore[assignment,method-assign]


def hasty_metadata() -> None:
    """A broker knows no topics right after its start (librdkafka 1.8)."""
    by_name = metadata._Asked.by_name
    knows_from = 0.0

    def hasty(asked: Any, name: str, refused: Any) -> Any:
        nonlocal knows_from
        found = yield from by_name(asked, name, refused)
        now = asyncio.get_running_loop().time()
        if asked.cache.topic(name) is not None:
            knows_from = knows_from or now + 0.3
        if now < knows_from:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return MetadataResponseTopic(error_code=code, name=name, partitions=[])
        return found

    metadata._Asked.by_name = hasty  # type: ignore[method-assign]


def reused_buffer() -> None:
    """Records that wait for verification are not copied from the receive buffer (KAFKA-15653)."""
    slow_markers()
    produce._keep_records = lambda _: None
    append = produce._append

    def reading_late(replicas: Any, slot: Any, *others: Any) -> None:
        # The header from before the wait would not fit the new bytes, so the CRC would find it.
        slot.header = produce.read_header(slot.records, 0, False)  # type: ignore[attr-defined]
        append(replicas, slot, *others)

    produce._append = reading_late


def slow_markers() -> None:
    """No fault: markers are delayed, and a producer's next transaction waits for them."""

    def later(sender: Any) -> None:
        if not sender._scheduled:
            sender._scheduled = True
            sender._timers.call_later(0.01, sender._send_due)

    marker_sender.AT_ONCE = 0  # type: ignore[misc]
    MarkerSender._schedule = later  # type: ignore[method-assign]


def expired_offsets() -> None:
    """Committed offsets expire as soon as they are loaded (KAFKA-8069)."""
    loaded = GroupShard.loaded

    def forgetful(shard: GroupShard, now: Instant) -> Any:
        shard.state.offsets = Offsets()
        return loaded(shard, now)

    GroupShard.loaded = forgetful  # type: ignore[method-assign]


def aborted_records_compact() -> None:
    """An aborted newer record removes a committed older one."""
    learn = compaction._Compaction._learn_keys
    is_void = CleanedTransactions.is_void

    def credulous(job: Any) -> None:
        CleanedTransactions.is_void = lambda *_: False  # type: ignore[assignment,method-assign]
        try:
            learn(job)
        finally:
            CleanedTransactions.is_void = is_void  # type: ignore[method-assign]

    compaction._Compaction._learn_keys = credulous  # type: ignore[method-assign]


def skipped_marker() -> None:
    """Sometimes a partition gets no marker."""
    to_mark = ending._to_mark
    chance = random.Random(0)

    def fewer(*what: Any) -> Any:
        partitions = to_mark(*what)
        if len(partitions) > 1 and chance.random() < 0.5:
            return partitions - {sorted(partitions)[0]}
        return partitions

    ending._to_mark = fewer


def offsets_of_aborted() -> None:
    """An abort marker commits the offsets of a group."""
    Offsets_replay = Offsets.replay_marker
    Offsets.replay_marker = (  # type: ignore[method-assign]
        lambda offsets, producer_id, _: Offsets_replay(offsets, producer_id, True)
    )


def unfenced() -> None:
    """A fenced producer is not refused."""

    def lenient(entry: TransactionalId, producer: Any) -> TransactionMetadata:
        txn = entry.txn
        if txn is None or txn.producer_id != producer.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return txn

    def current(txn: TransactionMetadata, producer: Any, _client_version: int) -> ending.Epoch:
        if txn.producer_id != producer.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return ending.Epoch.CURRENT

    TransactionalId.require = lenient  # type: ignore[method-assign]
    ending.epoch_of = current
    producer_rules.check_epoch = lambda *_: None


def revived_ids() -> None:
    """An expired transactional id accepts any producer (KAFKA-18019)."""
    require = TransactionTable.require_known

    def reviving(table: TransactionTable, transactional_id: str) -> TransactionalId:
        if transactional_id not in table.ids:
            entry = table.ids[transactional_id] = TransactionalId(transactional_id)
            now_ms = int(time.time() * 1000)
            entry.txn = TransactionMetadata(transactional_id, -1, -1, 2000, now_ms)
        return require(table, transactional_id)

    def any_producer(entry: TransactionalId, producer: Any) -> TransactionMetadata:
        if entry.txn is not None and entry.txn.producer_id == -1:
            entry.txn = entry.txn._replace(producer_id=producer.producer_id, epoch=producer.epoch)
        return checked(entry, producer)

    checked = TransactionalId.require
    TransactionTable.require_known = reviving  # type: ignore[method-assign]
    TransactionalId.require = any_producer  # type: ignore[method-assign]


MUTANTS: Final[dict[str, Callable[[], None]]] = {
    patch.__name__: patch
    for patch in (
        unverified,
        marker_refused_again,
        endless_epochs,
        spent_epochs,
        late_offsets,
        forgetful_coordinator,
        window_of_one,
        forgotten_sequences,
        short_memory,
        inclusive_last_stable_offset,
        short_aborted_index,
        hasty_coordinator,
        hasty_metadata,
        reused_buffer,
        expired_offsets,
        aborted_records_compact,
        skipped_marker,
        offsets_of_aborted,
        unfenced,
        revived_ids,
    )
}
LEVERS: Final[dict[str, Callable[[], None]]] = {
    "high_epochs": high_epochs,
    "refused_fencing": refused_fencing,
    "slow_markers": slow_markers,
}
"""Patches that make rare cases frequent; they are not faults."""
