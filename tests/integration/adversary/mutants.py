"""Brokers with one fault each, for the checker to find: what went wrong elsewhere, and what could.

Each is a patch of a class or module of the broker, installed by `mutant_broker.py` alone.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from barnabas.broker.coordination.gate import TransactionGate
from barnabas.broker.coordination.marker_sender import MarkerSender
from barnabas.broker.coordination.partition_log import LedPartition
from barnabas.broker.handlers import produce
from barnabas.broker.handlers.metadata import MetadataHandler
from barnabas.coordinator.decision import Decision, Turn
from barnabas.coordinator.group.offsets import Offsets
from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.transaction.ending import Ending
from barnabas.coordinator.transaction.ledger import Ledger
from barnabas.coordinator.transaction.metadata import NO_EPOCH, Transaction
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.storage import compaction, producer_rules, producer_state
from barnabas.storage.cleaned_transactions import CleanedTransactions
from barnabas.storage.log import Log
from barnabas.storage.producer_state import ProducerStateManager

HIGH_EPOCH: Final = 32_760
"""Where producer ids begin that are soon used up."""


def unverified() -> None:
    """The first batch of a transaction is taken unasked (KAFKA-14402)."""
    TransactionGate.verifies = property(lambda _: False)  # type: ignore[assignment,method-assign]


def marker_refused_again() -> None:
    """A marker that is sent again is refused, though nothing is open (KAFKA-19999)."""

    def check(entry: Any, header: Any) -> None:
        if entry is not None and header.producer_epoch == entry.producer_epoch:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)

    producer_rules._check_used_up = check


def endless_epochs() -> None:
    """An epoch is never used up (KAFKA-19367)."""
    high_epochs()
    Transaction.exhausted = property(lambda _: False)  # type: ignore[assignment,method-assign]


def high_epochs() -> None:
    """No fault: producer ids begin a few transactions before their last epoch."""
    incremented = Transaction.incremented

    def high(txn: Transaction, timeout_ms: int, expected: int | None, now_ms: int) -> Transaction:
        target = incremented(txn, timeout_ms, expected, now_ms)
        return target._replace(epoch=HIGH_EPOCH) if txn.epoch == NO_EPOCH else target

    Transaction.incremented = high  # type: ignore[method-assign]


def spent_epochs() -> None:
    """An epoch is used up although the log refused it (KAFKA-9666)."""
    high_epochs()
    refused_fencing()
    write = Ledger.write

    def spending(
        ledger: Ledger,
        target: Transaction,
        response: object,
        turn: Turn,
        noted: str,
        then: Callable[[Turn], Any] | None = None,
        refused: Callable[[Turn], Any] | None = None,
    ) -> Any:
        def spent(turn: Turn) -> Any:
            known = ledger.transactions.get(target.transactional_id)
            if known is not None and known.producer_id == target.producer_id:
                kept = known._replace(epoch=target.epoch)
                ledger.transactions[target.transactional_id] = kept
            return Decision() if refused is None else refused(turn)

        fences = target.state in (TransactionState.EMPTY, TransactionState.PREPARE_ABORT)
        return write(ledger, target, response, turn, noted, then, spent if fences else refused)

    Ledger.write = spending  # type: ignore[method-assign]


def refused_fencing() -> None:
    """No fault: a fencing lands at the fifth attempt, as while too few replicas are there."""
    write, append = Ledger.write, LedPartition.append
    tries: Counter[str] = Counter()
    refuses = False

    def counting(ledger: Ledger, target: Transaction, *others: Any, **options: Any) -> Any:
        nonlocal refuses
        if target.state is TransactionState.PREPARE_ABORT and "fenced" in others[2]:
            tries[target.transactional_id] += 1
            refuses = tries[target.transactional_id] % 5 != 0
        else:
            refuses = False
        return write(ledger, target, *others, **options)

    def refusing(log: LedPartition, *what: Any, **options: Any) -> int:
        nonlocal refuses
        if refuses and log._partition.topic == "__transaction_state":
            refuses = False
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return append(log, *what, **options)

    Ledger.write = counting  # type: ignore[method-assign]
    LedPartition.append = refusing  # type: ignore[method-assign]


def late_offsets() -> None:
    """Markers are answered before the group shows what they commit (KAFKA-17507)."""

    def replay(shard: GroupShard, producer_id: int, _epoch: int, committed: bool) -> None:
        for record in shard.offsets.pending.end(producer_id, committed):
            assert record.committed is not None
            keep = partial(shard.offsets._keep, *record[:3], record.committed)
            asyncio.get_running_loop().call_later(0.03, keep)

    GroupShard.replay_marker = replay  # type: ignore[method-assign]


def forgetful_coordinator() -> None:
    """That a transaction is open stands in memory alone (Redpanda 6018)."""
    write = Ledger.write

    def unwritten(
        ledger: Ledger,
        target: Transaction,
        response: object,
        turn: Turn,
        noted: str,
        then: Callable[[Turn], Any] | None = None,
        refused: Callable[[Turn], Any] | None = None,
    ) -> Any:
        if target.state is not TransactionState.ONGOING:
            return write(ledger, target, response, turn, noted, then, refused)
        ledger.replay(TransactionRecord(target.transactional_id, target, True))
        if then is not None:
            then(turn)
        return Decision(response=response)

    Ledger.write = unwritten  # type: ignore[method-assign]


def window_of_one() -> None:
    """After a restart one batch of each producer is remembered, not five (librdkafka 4953)."""
    replay = ProducerStateManager.replay

    def short(producers: ProducerStateManager, data: Any, batches: Any) -> Any:
        aborted = replay(producers, data, batches)
        for _, header in batches:
            entry = producers.entry(header.producer_id)
            if entry is not None:
                producers._entries[entry.producer_id] = entry._replace(batches=entry.batches[-1:])
        return aborted

    ProducerStateManager.replay = short  # type: ignore[method-assign]
    ProducerStateManager.extend_windows = lambda *_: None  # type: ignore[assignment,method-assign]


def forgotten_sequences() -> None:
    """After a restart no sequence is known, and the next one is out of order (librdkafka 3575)."""
    replay = ProducerStateManager.replay

    def forgetful(producers: ProducerStateManager, data: Any, batches: Any) -> Any:
        aborted = replay(producers, data, batches)
        for entry in list(producers):
            producers._entries[entry.producer_id] = entry._replace(batches=())
        return aborted

    ProducerStateManager.replay = forgetful  # type: ignore[method-assign]
    ProducerStateManager.extend_windows = lambda *_: None  # type: ignore[assignment,method-assign]


def short_memory() -> None:
    """Producers are forgotten while they live, and then unknown (KIP-360)."""
    check = producer_state.check_sequence
    expire = ProducerStateManager.expire

    def strict(entry: Any, header: Any, verification: Any) -> Any:
        if entry is None and header.base_sequence > 0:
            raise KafkaError(ErrorCode.UNKNOWN_PRODUCER_ID)
        return check(entry, header, verification)

    producer_state.check_sequence = strict
    ProducerStateManager.expire = (  # type: ignore[method-assign]
        lambda producers, now_ms, _: expire(producers, now_ms, 500)
    )


def inclusive_last_stable_offset() -> None:
    """The record at the last stable offset is given out too (Redpanda 3036)."""

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
    """Coordinators serve before they have read their log (KAFKA-9307)."""
    load = CoordinatorRuntime._load

    async def hasty(runtime: Any, index: int, hosted: Any) -> None:
        hosted.serving = True
        await asyncio.sleep(0.2)
        await load(runtime, index, hosted)

    CoordinatorRuntime._load = hasty  # type: ignore[assignment,method-assign]


def hasty_metadata() -> None:
    """A broker that was just started knows of no topic yet (librdkafka 1.8)."""
    handle = MetadataHandler.handle
    knows_from = 0.0

    async def hasty(handler: Any, request: Any, context: Any) -> Any:
        nonlocal knows_from
        answer = await handle(handler, request, context)
        now = asyncio.get_running_loop().time()
        if any(topic.error_code == 0 for topic in answer.topics):
            knows_from = knows_from or now + 0.3
        if now < knows_from:
            for topic in answer.topics:
                topic.error_code, topic.partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
        return answer

    MetadataHandler.handle = hasty  # type: ignore[method-assign]


def reused_buffer() -> None:
    """Records that wait stay in the connection's receive buffer (KAFKA-15653)."""
    slow_markers()
    produce._keep_records = lambda _: None


def slow_markers() -> None:
    """No fault: markers take a while, and whoever begins the next transaction waits for them."""

    def later(sender: Any) -> None:
        if not sender._scheduled:
            sender._scheduled = True
            sender._timers.call_later(0.01, sender._carry_due)

    MarkerSender._schedule = later  # type: ignore[method-assign]


def expired_offsets() -> None:
    """Committed offsets expire as soon as they are loaded (KAFKA-8069)."""
    loaded = GroupShard.loaded

    def forgetful(shard: GroupShard, turn: Turn) -> Any:
        shard.offsets = Offsets()
        return loaded(shard, turn)

    GroupShard.loaded = forgetful  # type: ignore[method-assign]


def aborted_records_compact() -> None:
    """An aborted newer record removes the committed older one of its key."""
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
    """Now and then a partition that was written gets no marker."""
    to_mark = Ending._to_mark
    chance = random.Random(0)

    def fewer(ending: Ending, txn: Transaction, written: Any) -> Any:
        partitions = to_mark(ending, txn, written)
        if len(partitions) > 1 and chance.random() < 0.1:
            return partitions - {sorted(partitions)[0]}
        return partitions

    Ending._to_mark = fewer  # type: ignore[method-assign]


def offsets_of_aborted() -> None:
    """An abort marker lets a group's offsets count."""
    Offsets_replay = Offsets.replay_marker
    Offsets.replay_marker = (  # type: ignore[method-assign]
        lambda offsets, producer_id, _: Offsets_replay(offsets, producer_id, True)
    )


def unfenced() -> None:
    """A producer that was replaced is not told so."""

    def lenient(ledger: Ledger, transactional_id: str, producer: Any) -> Transaction:
        txn = ledger.transactions.get(transactional_id)
        if txn is None or txn.producer_id != producer.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return txn

    Ledger.require = lenient  # type: ignore[method-assign]
    producer_state.check_epoch = lambda *_: None
    producer_rules.check_epoch = lambda *_: None


def revived_ids() -> None:
    """A transactional id that was forgotten is whose who comes first (KAFKA-18019)."""
    require = Ledger.require

    def reviving(ledger: Ledger, transactional_id: str, producer: Any) -> Transaction:
        if transactional_id not in ledger.transactions:
            now_ms = int(time.time() * 1000)
            ledger.transactions[transactional_id] = Transaction(
                transactional_id, producer.producer_id, producer.epoch, 2000, now_ms
            )
        return require(ledger, transactional_id, producer)

    Ledger.require = reviving  # type: ignore[method-assign]


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
"""What makes rare things frequent, and is no fault."""
