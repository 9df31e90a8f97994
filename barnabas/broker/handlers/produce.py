"""Produce (key 0): append one batch per partition, and answer when `acks` is satisfied.

v7 zstd, v8 errors by record, v10 the current leader with NOT_LEADER_OR_FOLLOWER (KIP-951),
v13 topic ids.

Each partition has a slot, which goes through four passes:

1. *Admit.* A transactional batch needs a verdict (`transactions/produce_verification.py`): before
   the first one in a partition the transaction coordinator is asked, to verify up to v11, to add
   from v12 on (KIP-890). Without a transactional id the request is refused with
   TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
2. *Append*, or put large batches into the append queue.
3. *Await* the append queue, then the replicas (acks=all) or the disk (`flush.messages=1`).
4. *Answer.*

A request that waits for nothing goes through them in one call, without a future, and its records
are appended from the receive buffer, without a copy.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.topic_names import INTERNAL_TOPICS
from barnabas.broker.replication.leader.leader_hints import current_leader, endpoints
from barnabas.broker.replication.partition import ACKS_ALL, Partition, Standing
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.security.rights import TOPIC, TRANSACTIONAL_ID, WRITE, Each, Need, Rights
from barnabas.broker.server.context import Acknowledgement, CloseConnection, RequestContext
from barnabas.broker.server.repeats import Repeat
from barnabas.broker.transactions.produce_verification import (
    ADDS_SINCE,
    ProduceVerification,
    Verdicts,
    VerificationError,
)
from barnabas.broker.transactions.producer_id_limit import ProducerIdCount, ProducerIdLimit
from barnabas.coordinator.soon import Soon, chain, settle, spawn, wait
from barnabas.coordinator.transaction.repeated import RepeatedStep
from barnabas.protocol.errors import ErrorCode, KafkaError, downgrade
from barnabas.protocol.messages.produce import (
    API,
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.protocol.records.batch import (
    TRANSACTIONAL,
    CorruptRecordError,
    begins_transactional,
    header_fields,
    header_of,
)
from barnabas.protocol.steps import Steps
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.log.log_parts import LogAppendInfo
from barnabas.storage.log.record_steps import TakesLong
from barnabas.storage.log.validator import (
    ZSTD_SINCE,
    RecordsRefused,
    check_codec_of_version,
    validate_briefly,
)
from barnabas.storage.producers.verification import Opener, VerificationGuard

__all__ = ["API", "RIGHTS", "again", "error_response", "handle"]

REPEATS_SINCE: Final = 7
"""The first version that is served again: it knows all codecs, and the log start offset."""
_TOPIC_IDS_SINCE = 13
_LEADER_HINTS_SINCE = 10
MANY = 500
"""The partitions of a request from which it is appended in slices."""
_AT_ONCE = 50
"""The slots that are made in one step then."""
_data_of = attrgetter("partition_data")
_QUEUED, _WAITS, _FAILED = 1, 2, 4
"""The outcomes of an append: it is in the append queue, misses an acknowledgement, or failed."""
_IN_MEMORY = (bytes, memoryview)
_VARYING: Final = ("topic_data.partition_data.records",)
_OF_ANSWER: Final = tuple(
    f"responses.partition_responses.{name}"
    for name in ("base_offset", "log_append_time_ms", "log_start_offset")
)
_UNKNOWN_LEADER: Final = LeaderIdAndEpoch()
"""Shared by all responses, because a separate object costs each response a quarter of its time."""
_WITHOUT_LOG_START = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)


def _is_transactional(request: ProduceRequest) -> bool:
    """Return whether a batch is transactional."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            # A decoder returns records in memory.
            records: Any = data.records
            if records and begins_transactional(records):
                if request.transactional_id is None:
                    # As in Kafka, before the rights to topics.
                    raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                return True
    return False


def _refused(topic: TopicProduceData, code: ErrorCode, _version: int) -> TopicProduceResponse:
    return TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=[_error(data, code) for data in topic.partition_data],
    )


RIGHTS = Rights(
    whole=(Need(WRITE, TRANSACTIONAL_ID, "transactional_id", when=_is_transactional),),
    each=Each("topic_data", (Need(WRITE, TOPIC, "name", "topic_id"),), _refused, "responses"),
)


_AddWaiter = Callable[[int, Callable[[KafkaError | None], None]], None]


class _Slot:
    """One partition of a request: its batch, its state, and its part of the response."""

    # Class attributes, because most batches need none of these, and each assignment costs.
    verdict: VerificationGuard | KafkaError | None = None
    partition: Partition | None = None
    producer_ids: ProducerIdCount | None = None
    """The count to which the producer id is added when the batch is appended: it is new here."""
    queued: asyncio.Future[LogAppendInfo] | None = None
    add_waiter: _AddWaiter | None = None
    """Adds a waiter for the acknowledgement that is missing after the append."""
    end_offset = -1
    """The offset that the acknowledgement has to reach."""
    leader_epoch = -1
    """The leader epoch of the request; set only if it is appended in slices or waits for the append
    queue."""

    def __init__(self, topic: str | None, data: PartitionProduceData) -> None:
        records = data.records
        # A decoder returns records in memory; a slice of a log is only ever sent.
        assert records is None or isinstance(records, _IN_MEMORY)
        self.topic = topic
        """The name; None if the topic id is unknown."""
        self.data = data
        self.records = records
        # Without one the append says why.
        self.header = header_of(records) if records else None
        self.answer = PartitionProduceResponse(
            index=data.index, base_offset=-1, current_leader=_UNKNOWN_LEADER
        )


class _Work(NamedTuple):
    """A request on its way through the passes."""

    replicas: ReplicaManager
    cache: MetadataCache
    limit: ProducerIdLimit
    request: ProduceRequest
    context: RequestContext
    slots: list[_Slot]
    response: ProduceResponse


def handle(
    replicas: ReplicaManager,
    cache: MetadataCache,
    verification: ProduceVerification,
    limit: ProducerIdLimit,
    request: ProduceRequest,
    context: RequestContext,
) -> Soon[ProduceResponse | None] | Steps[ProduceResponse | None]:
    """Append one batch per partition; internal topics are refused, whatever the client id is."""
    if request.acks not in (ACKS_ALL, 0, 1):
        return error_response(request, ErrorCode.INVALID_REQUIRED_ACKS, context.api_version)
    topics, version = request.topic_data, context.api_version
    slots: list[_Slot] = []
    response = ProduceResponse(responses=[])
    if len(topics) > MANY or sum(map(len, map(_data_of, topics))) > MANY:
        work = _Work(replicas, cache, limit, request, context, slots, response)
        return settle(_append_many(work, verification))
    for topic in topics:
        name = _topic_name(cache, topic, version)
        _add_topic(response, topic, _make_slots(name, topic.partition_data, slots))
    for slot in slots:
        if slot.header is not None and slot.header.attributes & TRANSACTIONAL:
            work = _Work(replicas, cache, limit, request, context, slots, response)
            waiting = _verify(work, verification)
            if waiting is not None:
                return waiting
            break
    return _append_all(replicas, cache, limit, request, context, slots, response)


def _append_many(
    work: _Work, verification: ProduceVerification
) -> Steps[Soon[ProduceResponse | None]]:
    """Append to many partitions, in slices."""
    for topic in work.request.topic_data:
        name = _topic_name(work.cache, topic, work.context.api_version)
        answers = []
        yield None
        for first in range(0, len(topic.partition_data), _AT_ONCE):
            some = topic.partition_data[first : first + _AT_ONCE]
            answers += _make_slots(name, some, work.slots)
            yield None
        _add_topic(work.response, topic, answers)
    if any(slot.header and slot.header.attributes & TRANSACTIONAL for slot in work.slots):
        waiting = _verify(work, verification)
        if waiting is not None:
            return waiting
    fate = 0
    for slot in work.slots:
        fate |= _append(
            work.replicas, work.cache, work.limit, slot, work.request.acks, work.context
        )
        if slot.partition is not None:
            slot.leader_epoch = slot.partition.leader_epoch
        yield None
    # A leadership may have ended between two slices.
    waits = fate & _WAITS and not fate & _QUEUED
    return _await_leaders(work) if waits else _appended(work, fate)


def _make_slots(
    name: str | None, some: list[PartitionProduceData], slots: list[_Slot]
) -> list[PartitionProduceResponse]:
    """Add slots for partitions of a topic; return their responses."""
    made = [_Slot(name, data) for data in some]
    slots += made
    return [slot.answer for slot in made]


def _add_topic(
    response: ProduceResponse, topic: TopicProduceData, answers: list[PartitionProduceResponse]
) -> None:
    if answers:
        response.responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )


def _verify(
    work: _Work, verification: ProduceVerification
) -> "asyncio.Future[ProduceResponse | None] | None":
    """Admit transactional batches; return the rest of the request if it has to wait for that."""
    verdicts = _ask_for_verdicts(verification, work.request, work.context, work.slots)
    if isinstance(verdicts, asyncio.Future):
        _keep_records(work.slots)
        return chain(verdicts, partial(_go_on, work))
    _admit(work.slots, verdicts)
    return None


def _topic_name(cache: MetadataCache, topic: TopicProduceData, version: int) -> str | None:
    return topic.name if version < _TOPIC_IDS_SINCE else cache.topic_name(topic.topic_id)


# -- admit ---------------------------------------------------------------------------------------


def _ask_for_verdicts(
    verification: ProduceVerification,
    request: ProduceRequest,
    context: RequestContext,
    slots: list[_Slot],
) -> Soon[Verdicts]:
    """Ask for verdicts on the transactional batches of known topics."""
    if request.transactional_id is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    batches = [
        (TopicPartition(slot.topic, slot.data.index), header)
        for slot in slots
        if slot.topic is not None
        and (header := slot.header) is not None
        and header.attributes & TRANSACTIONAL
    ]
    if not batches:
        return {}
    return verification.ask(request.transactional_id, context.api_version, batches, context.owner)


def _admit(slots: list[_Slot], verdicts: Verdicts) -> None:
    """Give the transactional batches their verdicts."""
    for slot in slots:
        if slot.header is not None and slot.header.attributes & TRANSACTIONAL:
            if slot.topic is None:
                # The coordinator was not asked, so the id may not become known meanwhile.
                slot.verdict = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            else:
                slot.verdict = verdicts[TopicPartition(slot.topic, slot.data.index)]


def _keep_records(slots: list[_Slot]) -> None:
    """Copy the records out of the receive buffer, because the request has to wait."""
    for slot in slots:
        if isinstance(slot.records, memoryview):
            slot.records = slot.data.records = bytes(slot.records)


def _go_on(work: _Work, verdicts: Verdicts) -> Soon[ProduceResponse | None]:
    """Continue a request that has waited for verdicts."""
    _admit(work.slots, verdicts)
    # Topics may have been created or deleted while the coordinator was asked.
    slots = iter(work.slots)
    for topic in work.request.topic_data:
        name = _topic_name(work.cache, topic, work.context.api_version)
        for _ in topic.partition_data:
            next(slots).topic = name
    return _append_all(*work)


# -- append --------------------------------------------------------------------------------------


def _append_all(
    replicas: ReplicaManager,
    cache: MetadataCache,
    limit: ProducerIdLimit,
    request: ProduceRequest,
    context: RequestContext,
    slots: list[_Slot],
    response: ProduceResponse,
) -> Soon[ProduceResponse | None]:
    """Append to every partition; a partition that refuses its batch does not stop the others."""
    acks, fate = request.acks, 0
    for slot in slots:
        fate |= _append(replicas, cache, limit, slot, acks, context)
    if not fate:
        return response if acks else None
    return _appended(_Work(replicas, cache, limit, request, context, slots, response), fate)


def _appended(work: _Work, fate: int) -> Soon[ProduceResponse | None]:
    """Answer, or wait for what is missing."""
    if not fate:
        return work.response if work.request.acks else None
    failed = bool(fate & _FAILED)
    if fate & _QUEUED:
        for slot in work.slots:
            if slot.partition is not None and slot.leader_epoch < 0:
                slot.leader_epoch = slot.partition.leader_epoch
        return spawn(_await_queue(work))
    if fate & _WAITS:
        return _Acknowledgements(work, failed=failed).future
    return _answer(work, failed=failed)


def _append(
    replicas: ReplicaManager,
    cache: MetadataCache,
    limit: ProducerIdLimit,
    slot: _Slot,
    acks: int,
    context: RequestContext,
) -> int:
    """Append to one partition, put the batch into its append queue, or refuse it; return what has
    come of it."""
    topic, records, header, guard = slot.topic, slot.records, slot.header, slot.verdict
    try:
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = slot.partition = replicas.partition(topic, slot.data.index)
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if not records:
            raise KafkaError(ErrorCode.INVALID_RECORD)
        if guard is not None and isinstance(guard, KafkaError):
            raise guard
        if (
            header is not None
            and header.producer_id >= 0
            and partition.log.producers.entry(header.producer_id) is None
        ):
            partition.require_leader()
            slot.producer_ids = limit.admit(context)
        if context.api_version < ZSTD_SINCE:
            check_codec_of_version(records, context.api_version, header)
        if partition.appends or partition.log.rules.looks_inside:
            _append_looking_inside(replicas, slot, partition, acks, context)
            if slot.queued is not None:
                return _QUEUED
        else:
            appended = partition.append(
                records, header=header, now_ms=context.received_ms, required_acks=acks, guard=guard
            )
            _complete(slot, partition, appended, acks)
    except KafkaError as error:
        _refuse(cache, slot, error, context.api_version)
        return _FAILED
    return _WAITS if slot.add_waiter is not None else 0


def _append_looking_inside(
    replicas: ReplicaManager, slot: _Slot, partition: Partition, acks: int, context: RequestContext
) -> None:
    """Append a short batch whose records are checked; put others into the append queue."""
    records, header = slot.records, slot.header
    assert records is not None
    options: dict[str, Any] = {
        "header": header,
        "now_ms": context.received_ms,
        "required_acks": acks,
        "guard": slot.verdict,
    }
    if not partition.appends:
        partition.require_leader()
        with suppress(TakesLong):
            validated = validate_briefly(
                records, partition.log.rules, now_ms=context.received_ms, header=header
            )
            appended = partition.append(records, validated=validated, **options)
            _complete(slot, partition, appended, acks)
            return
    slot.queued = replicas.appends.put(partition, records, **options)


def _complete(slot: _Slot, partition: Partition, appended: LogAppendInfo, acks: int) -> None:
    """Answer for a batch that is appended, and see which acknowledgement is missing."""
    first_offset, last_offset, append_time, log_start_offset, duplicate = appended
    cells = partition.cells
    cells.produces.value += 1
    if slot.producer_ids is not None:
        slot.producer_ids.add()
    if not duplicate:
        cells.bytes_in.value += len(slot.records or b"")
        cells.messages_in.value += last_offset - first_offset + 1
    answer = slot.answer
    answer.base_offset = first_offset
    answer.log_append_time_ms = append_time
    answer.log_start_offset = log_start_offset
    if acks == ACKS_ALL:
        if partition.log.high_watermark <= last_offset:
            slot.add_waiter = partition.add_waiter
            slot.end_offset = last_offset + 1
    elif acks == 1 and partition.flushes_first:
        slot.add_waiter = partition.add_flush_waiter
        slot.end_offset = last_offset + 1


def _refuse(cache: MetadataCache, slot: _Slot, error: KafkaError, version: int) -> None:
    """Answer for a batch that is not appended."""
    answer = slot.answer
    answer.error_code = downgrade(API.key, version, error.code)
    partition = slot.partition
    if partition is not None:
        cells = partition.cells
        cells.produces.value += 1
        cells.failed_produces.value += 1
        if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
            cells.bytes_rejected.value += len(slot.records or b"")
        if error.code not in _WITHOUT_LOG_START and not isinstance(error, VerificationError):
            answer.log_start_offset = partition.log.log_start_offset
    moved = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    if moved and slot.topic is not None and version >= _LEADER_HINTS_SINCE:
        leader = current_leader(cache, slot.topic, slot.data.index)
        answer.current_leader = LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
    if error.code is ErrorCode.POLICY_VIOLATION or (
        isinstance(error, VerificationError) and answer.error_code != error.code
    ):
        answer.error_message = error.message
    if isinstance(error, RecordsRefused):
        answer.error_message = error.message
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]


# -- await ---------------------------------------------------------------------------------------


async def _await_queue(work: _Work) -> ProduceResponse | None:
    """Wait for the appends that are in a queue, then for acknowledgements."""
    queued = [(slot, slot.queued) for slot in work.slots if slot.queued is not None]
    appends = [append for _, append in queued]
    try:
        await asyncio.wait(appends)
    except asyncio.CancelledError:
        for append in appends:
            append.cancel()
        raise
    for slot, append in queued:
        assert slot.topic is not None
        before, slot.partition = slot.partition, None
        try:
            # The partition may have been deleted meanwhile.
            slot.partition = work.replicas.partition(slot.topic, slot.data.index)
            appended = append.result()
            if slot.partition is not before or _has_lost_leadership(slot):
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            _complete(slot, slot.partition, appended, work.request.acks)
        except KafkaError as error:
            _refuse(work.cache, slot, error, work.context.api_version)
    return await wait(_await_leaders(work))


def _await_leaders(work: _Work) -> Soon[ProduceResponse | None]:
    """Refuse batches whose leadership has ended; await the acknowledgements of the others."""
    for slot in work.slots:
        if slot.add_waiter is not None and _has_lost_leadership(slot):
            slot.add_waiter = None
            slot.answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    failed = any(slot.answer.error_code for slot in work.slots)
    if any(slot.add_waiter is not None for slot in work.slots):
        return _Acknowledgements(work, failed=failed).future
    return _answer(work, failed=failed)


def _has_lost_leadership(slot: _Slot) -> bool:
    """Whether the leadership has ended in which the request arrived.

    The waiters of that leadership have failed already, and the log may have other records at the
    same offsets.
    """
    partition = slot.partition
    return (
        partition is None or not partition.is_leader or partition.leader_epoch != slot.leader_epoch
    )


class _Acknowledgements:
    """The acknowledgements of a request by replicas (acks=all) or the disk, with its timeout."""

    def __init__(self, work: _Work, *, failed: bool) -> None:
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[ProduceResponse | None] = Acknowledgement(loop=loop)
        self._work = work
        self._failed = failed
        waits = [(slot, slot.add_waiter) for slot in work.slots if slot.add_waiter is not None]
        self._missing = {slot for slot, _ in waits}
        timeout_s = max(work.request.timeout_ms, 0) / 1000
        self._timer = loop.call_later(timeout_s, self._timed_out)
        for slot, add_waiter in waits:
            add_waiter(slot.end_offset, partial(self._acknowledged, slot))

    def _acknowledged(self, slot: _Slot, error: KafkaError | None) -> None:
        if slot not in self._missing:
            return
        self._missing.remove(slot)
        assert slot.partition is not None
        if error is not None:
            slot.answer.error_code = error.code
        elif self._work.request.acks == ACKS_ALL and slot.partition.is_under_min_isr:
            slot.answer.error_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        if not self._missing:
            self._finish()

    def _timed_out(self) -> None:
        for slot in self._missing:
            slot.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._missing.clear()
        self._finish()

    def _finish(self) -> None:
        self._timer.cancel()
        if not self.future.done():
            self.future.set_result(_answer(self._work, failed=self._failed))


# -- answer --------------------------------------------------------------------------------------


def _answer(work: _Work, *, failed: bool) -> ProduceResponse | None:
    """Return the response. acks=0 has none, so that a batch that `failed` closes the connection."""
    if not work.request.acks:
        if failed:
            raise CloseConnection
        return None
    if failed and work.context.api_version >= _LEADER_HINTS_SINCE:
        leaders = [
            slot.answer.current_leader.leader_id
            for slot in work.slots
            if slot.answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        ]
        work.response.node_endpoints = [
            NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in endpoints(work.cache, leaders, work.context.listener)
        ]
    return work.response


# -- the next batch for a partition that the connection has written to ----------------------------


_Writing = tuple[
    ReplicaManager,
    ProduceVerification,
    RepeatedStep | None,
    TopicPartition,
    Standing,
    Opener | None,
]
"""The rest of a request for one partition: what adds it to each transaction, the partition, its
standing, and the owner of the transaction that the batches belong to; None if the client's right to
it was not asked for: the batch had none. A topic that is made anew has partitions with other
standings."""


def again(
    replicas: ReplicaManager,
    cache: MetadataCache,
    verification: ProduceVerification,
    _limit: ProducerIdLimit,
    request: ProduceRequest,
    context: RequestContext,
    response: ProduceResponse,
) -> Repeat | None:
    """Append the next batch to a partition, as long as it is certainly appended and committed at
    once.

    The requests for one partition differ in the batch, and the responses in the offset. A batch
    that the partition refuses is left to `handle`, which says why: a refusal changes nothing.
    """
    version = context.api_version
    if (
        version < REPEATS_SINCE
        or len(request.topic_data) != 1
        or len(request.topic_data[0].partition_data) != 1
    ):
        return None
    ((topic,), (answered,)) = request.topic_data, response.responses
    (data,), (answer,) = topic.partition_data, answered.partition_responses
    records: Any = data.records
    if answer.error_code or not records:
        return None
    name = _topic_name(cache, topic, version)
    place = TopicPartition(name or "", data.index)
    partition = replicas.find(place)
    if name is None or partition is None or not partition.standing.is_prompt:
        return None
    opener = added = None
    if request.transactional_id is not None and begins_transactional(records):
        opener = Opener(request.transactional_id, version >= ADDS_SINCE, context.owner)
        added = verification.repeated(place, opener)
    basis = place, partition.standing, opener
    known = replicas, verification, added, *basis
    return Repeat(_append_again, known, _VARYING, _OF_ANSWER, (*basis, added is not None))


def _append_again(
    writing: _Writing, now_ms: int, values: tuple[memoryview]
) -> tuple[int, int, int] | None:
    (records,) = values
    replicas, verification, added, place, standing, opener = writing
    partition = replicas.find(place)
    if partition is None or standing is not partition.standing or partition.appends:
        return None
    try:
        header = header_fields(records)
    except CorruptRecordError:
        return None
    _, _, _, _, _, attributes, _, _, _, producer_id, epoch, _, count = header
    guard = None
    if producer_id >= 0:
        producers = partition.log.producers
        entry = producers.entries.get(producer_id)
        if entry is None:
            # The handler limits the number of new producers.
            return None
        if attributes & TRANSACTIONAL:
            if (opened := entry.opened_by) is None:
                if opener is None or added is None:
                    guard = producers.expected(producer_id, epoch, opener)
                else:
                    guard = verification.add_again(added, producers, opener, header, now_ms)
                if guard is None:
                    return None
            elif opened != opener:
                return None
    appended = partition.append(records, now_ms, header, guard)
    first_offset, _, append_time, log_start_offset, duplicate = appended
    cells = partition.cells
    cells.produces.value += 1
    if not duplicate:
        cells.bytes_in.value += len(records)
        cells.messages_in.value += count
    return first_offset, append_time, log_start_offset


def _error(data: PartitionProduceData, code: ErrorCode) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)


def error_response(request: ProduceRequest, code: ErrorCode, version: int) -> ProduceResponse:
    """Answer every partition with `code`; raises CloseConnection because acks=0 has no response."""
    if request.acks == 0:
        raise CloseConnection
    return ProduceResponse(
        responses=[_refused(topic, code, version) for topic in request.topic_data]
    )
