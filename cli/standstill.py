"""Finds out what holds a last stable offset: asks the leader, the coordinator, and the logs.

Any broker since Kafka 3.0 tells enough; a Barnabas broker adds the time left, the client's address
and each marker.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from barnabas.cli.hanging import judged
from barnabas.cli.transaction_log import histories
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.offsets import LATEST, find_offsets
from barnabas.client.transaction_admin import OpenTransaction, TransactionAdmin
from barnabas.coordinator.transaction.decided import Outcome, Verdict
from barnabas.coordinator.transaction.metadata import TV2, Transaction
from barnabas.coordinator.transaction.states import COMPLETED, PREPARED, TransactionState
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import describe_transactions
from barnabas.protocol.topic_partition import TopicPartition

_EVENTS: Final = 32
"""Of the log: an epoch of the older protocol may have any number of transactions."""
_NAMES: Final = 10
"""Partitions that one event names."""
_FOR_EVER: Final = 1 << 63
_FIRST_RECORD_BYTES: Final = 1 << 16
_OPEN: Final = Verdict(Outcome.OPEN, "the transaction is open: its producer has not ended it yet")


class Happened(NamedTuple):
    """Something that happened to a transaction, in ms of wall clock."""

    at_ms: int
    event: str


class Standstill(NamedTuple):
    """A partition whose readers wait, and for what; None where it is not known."""

    topic: str
    partition: int
    last_stable_offset: int
    high_watermark: int
    because: str
    advice: str | None = None
    """The command that helps."""
    producer_id: int | None = None
    producer_epoch: int | None = None
    transactional_id: str | None = None
    coordinator: int | None = None
    state: str | None = None
    age_ms: int | None = None
    time_left_ms: int | None = None
    client: str | None = None
    timeline: Sequence[Happened] = ()


class _Coordinated(NamedTuple):
    """What the coordinator says of the transactional id."""

    transactional_id: str
    coordinator: int
    described: describe_transactions.TransactionState


async def standstills(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, now_ms: int
) -> list[Standstill]:
    """Those of `partitions` that are held back."""
    wanted = dict.fromkeys(partitions, LATEST)
    # In this order: what commits in between must not look as if it held readers back.
    ends = await find_offsets(cluster, wanted)
    stable = await find_offsets(cluster, wanted, read_committed=True)
    held = [each for each in wanted if stable[each].offset < ends[each].offset]
    oldest: dict[TopicPartition, OpenTransaction] = {}
    for each in await TransactionAdmin(cluster).open_in(held):
        oldest.setdefault(each.place, each)
    witnesses = _Witnesses(cluster, {each.producer_id for each in oldest.values()})
    found = []
    for place in held:
        at, end = stable[place].offset, ends[place].offset
        culprit = oldest.get(place)
        if culprit is None or culprit.start_offset > at:
            found.append(_unreplicated(place, at, end))
        else:
            inquiry = _Inquiry(cluster, witnesses, culprit, now_ms)
            found.append(await inquiry.result(at, end))
    return found


def _unreplicated(place: TopicPartition, stable: int, end: int) -> Standstill:
    because = "no transaction is open: a marker waits until its replicas have it, or came just now"
    return Standstill(*place, stable, end, because)


class _Witnesses:
    """Coordinators and the transaction log, each asked once about all the producers."""

    def __init__(self, cluster: Cluster, producer_ids: set[int]) -> None:
        self._cluster = cluster
        self._admin = TransactionAdmin(cluster)
        self._producer_ids = producer_ids
        self._ids: dict[int, str] | None = None
        self._described: dict[str, _Coordinated | None] = {}
        self._histories: dict[int, list[Transaction]] | None = None

    async def coordinator(self, producer_id: int) -> _Coordinated | None:
        """None where no coordinator knows the producer id any more."""
        transactional_id = (await self._known()).get(producer_id)
        if transactional_id is None:
            return None
        if transactional_id not in self._described:
            self._described[transactional_id] = await self._describe(transactional_id)
        return self._described[transactional_id]

    async def history(self, producer_id: int) -> list[Transaction]:
        """What the log has of the producer's transactional id."""
        if self._histories is None:
            known = await self._known()
            self._histories = await histories(self._cluster, self._producer_ids, known)
        return self._histories.get(producer_id, [])

    async def _known(self) -> dict[int, str]:
        if self._ids is None:
            self._ids = await self._admin.transactional_ids(self._producer_ids)
        return self._ids

    async def _describe(self, transactional_id: str) -> _Coordinated | None:
        try:
            described = await self._admin.describe(transactional_id, diary=True)
        except KafkaError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            return None
        coordinator = await self._admin.coordinator(transactional_id)
        return _Coordinated(transactional_id, coordinator, described)


class _Inquiry:
    """Everything about one open transaction."""

    def __init__(
        self, cluster: Cluster, witnesses: _Witnesses, culprit: OpenTransaction, now_ms: int
    ) -> None:
        self._cluster = cluster
        self._witnesses = witnesses
        self._culprit = culprit
        self._now_ms = now_ms

    async def result(self, stable: int, end: int) -> Standstill:
        culprit = self._culprit
        first_ms = await self._first_record_ms()
        told = await self._witnesses.coordinator(culprit.producer_id)
        described = told.described if told is not None else None
        has_it_open = described is not None and self._is_open(described)
        history: list[Transaction] = []
        # The log is long: it is not read where the coordinator tells everything.
        if described is None or not has_it_open or not _tells_all(described):
            history = await self._witnesses.history(culprit.producer_id)
        said = _OPEN if has_it_open else judged(culprit, history)
        began_ms = first_ms
        if described is not None and has_it_open:
            began_ms = described.transaction_start_time_ms
        left_ms = described.time_left_ms if described is not None else -1
        because, advice = self._explained(said, told)
        return Standstill(
            culprit.topic,
            culprit.partition,
            stable,
            end,
            because,
            advice,
            producer_id=culprit.producer_id,
            producer_epoch=culprit.producer_epoch,
            transactional_id=told.transactional_id if told is not None else _name(history),
            coordinator=told.coordinator if told is not None else None,
            state=described.transaction_state if described is not None else None,
            age_ms=None if began_ms is None else max(self._now_ms - began_ms, 0),
            time_left_ms=left_ms if left_ms >= 0 and said.outcome is Outcome.OPEN else None,
            client=described.client_host if described is not None else None,
            timeline=self._timeline(described, history, said, first_ms),
        )

    def _is_open(self, described: describe_transactions.TransactionState) -> bool:
        culprit = self._culprit
        return (
            described.transaction_state == TransactionState.ONGOING.value
            and described.producer_id == culprit.producer_id
            and described.producer_epoch == culprit.producer_epoch
            and any(
                topic.topic == culprit.topic and culprit.partition in topic.partitions
                for topic in described.topics
            )
        )

    async def _first_record_ms(self) -> int | None:
        """When the first record of the transaction in this partition says it was made."""
        settings = FetchSettings(
            read_committed=False, partition_max_bytes=_FIRST_RECORD_BYTES, offset_reset=None
        )
        consumer = Consumer(self._cluster, settings)
        consumer.assign({self._culprit.place: self._culprit.start_offset})
        records = await consumer.poll()
        return records[0].timestamp if records else None

    def _explained(self, said: Verdict, told: _Coordinated | None) -> tuple[str, str | None]:
        place = f"{self._culprit.topic}:{self._culprit.partition}"
        if said.outcome is Outcome.OPEN:
            if told is not None and said is _OPEN:
                return said.why, f"barnabas transactions fence {told.transactional_id}"
            return said.why, None
        if said.outcome is not Outcome.UNKNOWN and said.own_epoch:
            because = f"the transaction hangs, its marker is lost: {said.why}"
            return because, f"barnabas transactions repair {place}"
        offset = f"--start-offset {self._culprit.start_offset}"
        abort = f"barnabas transactions abort {place} {offset}"
        if said.outcome is Outcome.ABORTED:
            return f"the transaction hangs: {said.why}", abort
        return f"the transaction hangs: {said.why}", f"{abort} --force"

    def _timeline(
        self,
        described: describe_transactions.TransactionState | None,
        history: list[Transaction],
        said: Verdict,
        first_ms: int | None,
    ) -> list[Happened]:
        told = described.events if described is not None else None
        noted = [Happened(each.at_ms, each.text) for each in told or ()]
        ours = [each for each in history if self._concerns(each)]
        # The diary begins with its coordinator; the log knows what was before, and where an epoch
        # is one transaction, when that was over.
        since = noted[0].at_ms if noted else _FOR_EVER
        until = ours[-1].updated_ms if said.own_epoch and ours else _FOR_EVER
        events = _logged([each for each in ours if each.updated_ms < since])[-_EVENTS:]
        events += [each for each in noted if each.at_ms <= until]
        if first_ms is not None:
            place = f"{self._culprit.topic}-{self._culprit.partition}"
            offset = self._culprit.start_offset
            events.append(Happened(first_ms, f"record {offset} of {place}, by its own clock"))
        return sorted(events, key=lambda each: each.at_ms)

    def _concerns(self, record: Transaction) -> bool:
        """Whether a record is of the epoch, or of a decision that used it up."""
        used = self._culprit.producer_id, self._culprit.producer_epoch
        if record.state in PREPARED | COMPLETED and record.client_version >= TV2:
            exhausted = record.epoch == 0 and record.previous_producer_id == used[0]
            return exhausted or (record.producer_id, record.epoch - 1) == used
        return record.producer == used


def _tells_all(described: describe_transactions.TransactionState) -> bool:
    """Whether the diary goes back to the transaction's beginning."""
    events = described.events or ()
    return any(each.at_ms <= described.transaction_start_time_ms for each in events)


def _name(history: list[Transaction]) -> str | None:
    return history[-1].transactional_id if history else None


def _named(partitions: Iterable[TopicPartition]) -> str:
    names = [f"{topic}-{index}" for topic, index in sorted(partitions)]
    more = [f"{len(names) - _NAMES} more"] if len(names) > _NAMES else []
    return ", ".join(names[:_NAMES] + more)


def _logged(history: Iterable[Transaction]) -> list[Happened]:
    """What each record in the log says that its predecessor does not."""
    events: list[Happened] = []
    before: frozenset[TopicPartition] = frozenset()
    for each in history:
        event = each.state.value
        if each.state is TransactionState.EMPTY:
            event = f"InitProducerId, epoch {each.epoch}"
        elif each.state is TransactionState.ONGOING:
            event = f"adds {_named(each.partitions - before)}"
        before = each.partitions
        events.append(Happened(each.updated_ms, event))
    return events
