"""The diagnosis of a stuck last stable offset, from the leader, the coordinator and the logs.

The APIs of Kafka 3.0 and later are enough. A Barnabas broker adds the time left, the address of the
client and each marker.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.offsets import LATEST, find_offsets
from barnabas.client.transaction_admin import OpenTransaction, TransactionAdmin, is_two_phase
from barnabas.coordinator.transaction.metadata import TV2, TransactionMetadata
from barnabas.coordinator.transaction.outcome import ReasonedOutcome, TransactionOutcome
from barnabas.coordinator.transaction.states import COMPLETED, PREPARED, TransactionState
from barnabas.operations.answers.model import names_of
from barnabas.operations.answers.transactions import Event, StuckPartition
from barnabas.operations.transactions.hanging import verdict_of
from barnabas.operations.transactions.kept import advice as two_phase_advice
from barnabas.operations.transactions.kept import explanation, keeper
from barnabas.operations.transactions.log import History, histories
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import describe_transactions
from barnabas.protocol.topic_partition import TopicPartition

_MAX_LOG_EVENTS: Final = 32
"""An epoch of the older protocol may have any number of transactions."""
_MAX_NAMES: Final = 10
"""The largest number of partitions that one event names."""
_KNOWN: Final = 5
"""The fields of a partition without an open transaction; the timeline is the last one."""
_NEVER: Final = 1 << 63
_FIRST_RECORD_BYTES: Final = 1 << 16
_OPEN: Final = ReasonedOutcome(
    TransactionOutcome.OPEN, "the transaction is open: its producer has not ended it yet"
)


class _CoordinatorView(NamedTuple):
    """The state of a transactional id at its coordinator."""

    transactional_id: str
    coordinator: int
    described: describe_transactions.TransactionState


async def stuck_partitions(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, now_ms: int
) -> list[StuckPartition]:
    """Return those of `partitions` whose last stable offset is below the high watermark."""
    held = await held_back(cluster, partitions)
    oldest: dict[TopicPartition, OpenTransaction] = {}
    for each in await TransactionAdmin(cluster).open_in(held):
        oldest.setdefault(each.topic_partition, each)
    sources = _Sources(cluster, {each.producer_id for each in oldest.values()})
    found = []
    for partition, (at, end) in held.items():
        blocking = oldest.get(partition)
        if blocking is None or blocking.start_offset > at:
            found.append(_unreplicated(partition, at, end))
        else:
            diagnosis = _Diagnosis(cluster, sources, blocking, now_ms)
            found.append(await diagnosis.result(at, end))
    return found


async def held_back(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return last stable offset and high watermark of partitions where they differ."""
    wanted = dict.fromkeys(partitions, LATEST)
    # First the ends: a transaction that commits between the two requests holds nothing back.
    ends = await find_offsets(cluster, wanted)
    stable = await find_offsets(cluster, wanted, read_committed=True)
    return {
        each: (stable[each].offset, ends[each].offset)
        for each in wanted
        if stable[each].offset < ends[each].offset
    }


def _unreplicated(partition: TopicPartition, stable: int, end: int) -> StuckPartition:
    because = "no transaction is open: a marker is not replicated yet, or was just appended"
    unknown: Any = dict.fromkeys(names_of(StuckPartition)[_KNOWN:-1])
    return StuckPartition(*partition, stable, end, because, **unknown, timeline=[])


class _Sources:
    """The coordinators and the transaction log, each queried once for all producers."""

    def __init__(self, cluster: Cluster, producer_ids: set[int]) -> None:
        self._cluster = cluster
        self._admin = TransactionAdmin(cluster)
        self._producer_ids = producer_ids
        self._ids: dict[int, str] | None = None
        self._described: dict[str, _CoordinatorView | None] = {}
        self._histories: dict[int, History] | None = None

    async def coordinator(self, producer_id: int) -> _CoordinatorView | None:
        """Return the coordinator's state; None if no coordinator knows the producer id any more."""
        transactional_id = (await self._transactional_ids()).get(producer_id)
        if transactional_id is None:
            return None
        if transactional_id not in self._described:
            self._described[transactional_id] = await self._describe(transactional_id)
        return self._described[transactional_id]

    async def history(self, producer_id: int) -> History:
        """Return the log records of the producer's transactional id."""
        if self._histories is None:
            known = await self._transactional_ids()
            self._histories = await histories(self._cluster, self._producer_ids, known)
        return self._histories.get(producer_id, History([]))

    async def _transactional_ids(self) -> dict[int, str]:
        if self._ids is None:
            self._ids = await self._admin.transactional_ids(self._producer_ids)
        return self._ids

    async def _describe(self, transactional_id: str) -> _CoordinatorView | None:
        try:
            described = await self._admin.describe(transactional_id, include_events=True)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            return None
        coordinator = await self._admin.coordinator(transactional_id)
        return _CoordinatorView(transactional_id, coordinator, described)


class _Diagnosis:
    """The diagnosis of the transaction that holds back a partition."""

    def __init__(
        self, cluster: Cluster, sources: _Sources, blocking: OpenTransaction, now_ms: int
    ) -> None:
        self._cluster = cluster
        self._sources = sources
        self._blocking = blocking
        self._now_ms = now_ms

    async def result(self, stable: int, end: int) -> StuckPartition:
        blocking = self._blocking
        first_ms = await self._first_record_ms()
        view = await self._sources.coordinator(blocking.producer_id)
        described = view.described if view is not None else None
        is_open = described is not None and self._is_open(described)
        history = History([])
        # The log is long: do not read it if the coordinator's response has everything.
        if described is None or not is_open or not _has_all_events(described):
            history = await self._sources.history(blocking.producer_id)
        verdict = _OPEN if is_open else verdict_of(blocking, history)
        began_ms = first_ms
        if described is not None and is_open:
            began_ms = described.transaction_start_time_ms
        left_ms = described.time_left_ms if described is not None else -1
        because, advice = self._explanation(verdict, view)
        return StuckPartition(
            blocking.topic,
            blocking.partition,
            stable,
            end,
            because,
            advice,
            producer_id=blocking.producer_id,
            producer_epoch=blocking.producer_epoch,
            transactional_id=view.transactional_id
            if view is not None
            else _transactional_id(history.records),
            coordinator=view.coordinator if view is not None else None,
            state=described.transaction_state if described is not None else None,
            age_ms=None if began_ms is None else max(self._now_ms - began_ms, 0),
            time_left_ms=left_ms
            if left_ms >= 0 and verdict.outcome is TransactionOutcome.OPEN
            else None,
            client=described.client_host if described is not None else None,
            keeper=keeper(described) if described is not None and is_two_phase(described) else None,
            timeline=self._timeline(described, history.records, verdict, first_ms),
        )

    def _is_open(self, described: describe_transactions.TransactionState) -> bool:
        blocking = self._blocking
        return (
            described.transaction_state == TransactionState.ONGOING.value
            and described.producer_id == blocking.producer_id
            and described.producer_epoch == blocking.producer_epoch
            and any(
                topic.topic == blocking.topic and blocking.partition in topic.partitions
                for topic in described.topics
            )
        )

    async def _first_record_ms(self) -> int | None:
        """Return the timestamp of the transaction's first record in this partition."""
        settings = FetchSettings(
            read_committed=False, partition_max_bytes=_FIRST_RECORD_BYTES, offset_reset=None
        )
        consumer = Consumer(self._cluster, settings)
        consumer.assign({self._blocking.topic_partition: self._blocking.start_offset})
        records = await consumer.poll()
        return records[0].timestamp if records else None

    def _explanation(
        self, verdict: ReasonedOutcome, view: _CoordinatorView | None
    ) -> tuple[str, str | None]:
        name = f"{self._blocking.topic}:{self._blocking.partition}"
        if verdict.outcome is TransactionOutcome.OPEN:
            if view is not None and verdict is _OPEN and is_two_phase(view.described):
                because = f"the transaction is {explanation(view.described, self._now_ms)}"
                return because, two_phase_advice(view.transactional_id)
            if view is not None and verdict is _OPEN:
                return verdict.why, f"barnabas transactions fence {view.transactional_id}"
            return verdict.why, None
        if verdict.outcome is not TransactionOutcome.UNKNOWN and verdict.own_epoch:
            because = f"the transaction hangs, its marker is lost: {verdict.why}"
            return because, f"barnabas transactions repair {name}"
        offset = f"--start-offset {self._blocking.start_offset}"
        abort = f"barnabas transactions abort {name} {offset}"
        if verdict.outcome is TransactionOutcome.ABORTED:
            return f"the transaction hangs: {verdict.why}", abort
        return f"the transaction hangs: {verdict.why}", f"{abort} --force"

    def _timeline(
        self,
        described: describe_transactions.TransactionState | None,
        history: list[TransactionMetadata],
        verdict: ReasonedOutcome,
        first_ms: int | None,
    ) -> list[Event]:
        reported = described.events if described is not None else None
        noted = [Event(each.at_ms, each.text) for each in reported or ()]
        ours = [each for each in history if self._is_relevant(each)]
        # The events of the coordinator begin with its start; the log has the earlier ones. If an
        # epoch has one transaction, the log also tells when that transaction was over.
        since = noted[0].at_ms if noted else _NEVER
        until = ours[-1].updated_ms if verdict.own_epoch and ours else _NEVER
        events = _log_events([each for each in ours if each.updated_ms < since])[-_MAX_LOG_EVENTS:]
        events += [each for each in noted if each.at_ms <= until]
        if first_ms is not None:
            name = f"{self._blocking.topic}-{self._blocking.partition}"
            offset = self._blocking.start_offset
            events.append(Event(first_ms, f"record {offset} of {name} (timestamp of the record)"))
        return sorted(events, key=lambda each: each.at_ms)

    def _is_relevant(self, record: TransactionMetadata) -> bool:
        """Whether a record has the epoch of the transaction, or is the decision that ended it."""
        used = self._blocking.producer_id, self._blocking.producer_epoch
        if record.ended is not None:
            return record.ended == used
        if record.state in PREPARED | COMPLETED and record.client_version >= TV2:
            exhausted = record.epoch == 0 and record.previous_producer_id == used[0]
            return exhausted or (record.producer_id, record.epoch - 1) == used
        return record.producer == used


def _has_all_events(described: describe_transactions.TransactionState) -> bool:
    """Whether the coordinator's events go back to the beginning of the transaction."""
    events = described.events or ()
    return any(each.at_ms <= described.transaction_start_time_ms for each in events)


def _transactional_id(history: list[TransactionMetadata]) -> str | None:
    return history[-1].transactional_id if history else None


def _partition_names(partitions: Iterable[TopicPartition]) -> str:
    names = [f"{topic}-{index}" for topic, index in sorted(partitions)]
    more = [f"{len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else []
    return ", ".join(names[:_MAX_NAMES] + more)


def _log_events(history: Iterable[TransactionMetadata]) -> list[Event]:
    """Return an event for each record in the log: the change from the record before it."""
    events: list[Event] = []
    before: frozenset[TopicPartition] = frozenset()
    for each in history:
        event = each.state.value
        producer_id, epoch = each.client
        if each.state is TransactionState.EMPTY:
            event = f"InitProducerId, epoch {each.epoch}"
        elif each.is_kept:
            event = f"InitProducerId keeps the transaction for client {producer_id}:{epoch}"
        elif each.state is TransactionState.ONGOING:
            event = f"adds {_partition_names(each.partitions - before)}"
        before = each.partitions
        events.append(Event(each.updated_ms, event))
    return events
