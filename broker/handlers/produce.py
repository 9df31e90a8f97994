"""Produce (key 0): append one batch per partition, and answer when `acks` is satisfied.

v7 zstd, v8 errors by record, v10 the current leader with NOT_LEADER_OR_FOLLOWER (KIP-951),
v13 topic ids. A handler on the fast path: it returns the answer itself wherever nothing must be
waited for, so the records are appended straight from the receive buffer.

A transactional batch is appended when `coordination/admission.py` lets it pass: before the first
one in a partition the transaction's coordinator is asked, to verify up to v11, to add from v12 on
(KIP-890). Without a transactional id it is TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
"""

import asyncio
from typing import Any, NamedTuple

from barnabas.broker.coordination.admission import (
    ProduceAdmission,
    Refused,
    Verdicts,
    batch_of,
    is_transactional,
)
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.topic_names import INTERNAL_TOPICS
from barnabas.broker.replication.acknowledging import Acknowledging, Wait
from barnabas.broker.replication.leader_hints import current_leader, endpoints
from barnabas.broker.replication.partition import ACKS_ALL, Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.server.context import CloseConnection, RequestContext
from barnabas.coordinator.soon import promised, settled
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
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.log_parts import Appended
from barnabas.storage.validator import (
    ZSTD_SINCE,
    RecordsRefused,
    check_codec_of_version,
    takes_steps,
)
from barnabas.storage.verification import Guard

__all__ = ["API", "SERVES", "ProduceHandler", "error_response"]

SERVES = range(3, 14)
_TOPIC_IDS_SINCE = 13
_LEADER_HINTS_SINCE = 10
_INLINE = (bytes, memoryview)
"""Records as a decoder yields them; a slice of a log is only ever sent."""
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


class ProduceHandler:
    """Serves producers. Internal topics are refused, whatever client id is claimed."""

    def __init__(
        self, replicas: ReplicaManager, cache: MetadataCache, admission: ProduceAdmission
    ) -> None:
        self._replicas = replicas
        self._cache = cache
        self._admission = admission

    def handle(
        self,
        request: ProduceRequest,
        context: RequestContext,
        verdicts: Verdicts | None = None,
    ) -> "ProduceResponse | asyncio.Future[Any] | None":
        if request.acks not in (ACKS_ALL, 0, 1):
            return error_response(request, ErrorCode.INVALID_REQUIRED_ACKS, context.api_version)
        acks, version = request.acks, context.api_version
        if verdicts is None and _is_transactional(request):
            return self._admit(request, context)
        topics: list[TopicProduceResponse] = []
        waits: list[Wait | _Queued] = []
        failed = False
        for topic in request.topic_data:
            name: str | None = topic.name
            if version >= _TOPIC_IDS_SINCE:
                name = self._cache.topic_name(topic.topic_id)
            answers = []
            for data in topic.partition_data:
                answer = self._append(name, data, acks, verdicts, context, waits)
                answers.append(answer)
                if answer.error_code:
                    failed = True
            if answers:
                topics.append(
                    TopicProduceResponse(
                        name=topic.name, topic_id=topic.topic_id, partition_responses=answers
                    )
                )
        response = ProduceResponse(responses=topics)
        if failed or waits:
            return self._unfinished(response, waits, request, context, verdicts)
        return response if acks else None

    def _unfinished(
        self,
        response: ProduceResponse,
        waits: "list[Wait | _Queued]",
        request: ProduceRequest,
        context: RequestContext,
        verdicts: Verdicts | None,
    ) -> "ProduceResponse | asyncio.Future[Any] | None":
        """What follows the appends where one has failed, or has to be waited for."""
        queued = {id(each.place): each for each in waits if isinstance(each, _Queued)}
        acknowledged = [each for each in waits if isinstance(each, Wait)]
        if queued:
            return promised(
                self._when_appended(response, acknowledged, queued, request, context, verdicts)
            )
        if any(
            answer.error_code
            for topic in response.responses
            for answer in topic.partition_responses
        ):
            if not request.acks:
                raise CloseConnection
            if context.api_version >= _LEADER_HINTS_SINCE:
                self._add_endpoints(response, context.listener)
        if acknowledged:
            return Acknowledging(response, acknowledged, request.timeout_ms).future
        return response if request.acks else None

    async def _when_appended(
        self,
        response: ProduceResponse,
        acknowledged: list[Wait],
        queued: "dict[int, _Queued]",
        request: ProduceRequest,
        context: RequestContext,
        verdicts: Verdicts | None,
    ) -> ProduceResponse | None:
        """Put the answers of appends that were queued where they belong, then go on."""
        waits: list[Wait | _Queued] = [*acknowledged]
        turns = [each.turn for each in queued.values()]
        try:
            await asyncio.wait(turns)
        except asyncio.CancelledError:
            for turn in turns:
                turn.cancel()
            raise
        for topic in response.responses:
            for number, place in enumerate(topic.partition_responses):
                if each := queued.get(id(place)):
                    topic.partition_responses[number] = self._append(
                        each.topic, each.data, request.acks, verdicts, context, waits, each.turn
                    )
        return await settled(self._unfinished(response, waits, request, context, verdicts))

    def _admit(
        self, request: ProduceRequest, context: RequestContext
    ) -> "ProduceResponse | asyncio.Future[Any] | None":
        """Ask for verdicts on the transactional batches, then go on with them."""
        if request.transactional_id is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        version = context.api_version
        batches = [
            batch_of((name, data.index), data.records)
            for topic in request.topic_data
            if (name := self._name(topic, version)) is not None
            for data in topic.partition_data
            if isinstance(data.records, _INLINE) and is_transactional(data.records)
        ]
        if not batches:
            return self.handle(request, context, {})
        verdicts = self._admission.ask(request.transactional_id, version, batches)
        if isinstance(verdicts, dict):
            return self.handle(request, context, verdicts)
        _keep_records(request)
        return promised(self._when_judged(request, context, verdicts))

    async def _when_judged(
        self,
        request: ProduceRequest,
        context: RequestContext,
        verdicts: "asyncio.Future[Verdicts]",
    ) -> ProduceResponse | None:
        return await settled(self.handle(request, context, await verdicts))

    def _name(self, topic: TopicProduceData, version: int) -> str | None:
        if version >= _TOPIC_IDS_SINCE:
            return self._cache.topic_name(topic.topic_id)
        return topic.name

    def _append(
        self,
        topic: str | None,
        data: PartitionProduceData,
        acks: int,
        verdicts: Verdicts | None,
        context: RequestContext,
        waits: "list[Wait | _Queued]",
        turn: "asyncio.Future[Appended] | None" = None,
    ) -> PartitionProduceResponse:
        """Append to one partition, or take what its `turn` in the queue has brought."""
        partition: Partition | None = None
        records, index = data.records, data.index
        assert records is None or isinstance(records, _INLINE)
        try:
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            partition = self._replicas.partition(topic, index)
            if topic in INTERNAL_TOPICS:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
            if not records:
                raise KafkaError(ErrorCode.INVALID_RECORD)
            guard = None
            if verdicts is not None and is_transactional(records):
                guard = _admitted(verdicts, (topic, index))
            if context.api_version < ZSTD_SINCE:
                check_codec_of_version(records, context.api_version)
            if turn is not None:
                appended = turn.result()
            elif partition.appends or (partition.log.rules.looks_inside and takes_steps(records)):
                turn = self._replicas.appends.put(
                    partition, records, now_ms=context.received_ms, required_acks=acks, guard=guard
                )
                place = _error(data, ErrorCode.NONE)
                waits.append(_Queued(place, topic, data, turn))
                return place
            else:
                appended = partition.append_as_leader(
                    records, now_ms=context.received_ms, required_acks=acks, guard=guard
                )
        except KafkaError as error:
            return self._refused(topic, data, error, partition, context.api_version)
        first_offset, last_offset, append_time, log_start_offset, duplicate = appended
        cells = partition.cells
        cells.produces.value += 1
        if not duplicate:
            cells.bytes_in.value += len(records)
            cells.messages_in.value += last_offset - first_offset + 1
        answer = PartitionProduceResponse(
            index=index,
            base_offset=first_offset,
            log_append_time_ms=append_time,
            log_start_offset=log_start_offset,
        )
        if acks == ACKS_ALL:
            if partition.log.high_watermark <= last_offset:
                waits.append(Wait(partition, appended, answer, partition.add_waiter))
        elif acks == 1 and partition.flushes_first:
            waits.append(Wait(partition, appended, answer, partition.add_flush_waiter))
        return answer

    def _refused(
        self,
        topic: str | None,
        data: PartitionProduceData,
        error: KafkaError,
        partition: Partition | None,
        version: int,
    ) -> PartitionProduceResponse:
        answer = _error(data, downgrade(API.key, version, error.code))
        if partition is not None:
            cells = partition.cells
            cells.produces.value += 1
            cells.failed_produces.value += 1
            if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
                cells.bytes_rejected.value += len(data.records or b"")
            if error.code not in _WITHOUT_LOG_START and not isinstance(error, Refused):
                answer.log_start_offset = partition.log.log_start_offset
        moved = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        if moved and topic is not None and version >= _LEADER_HINTS_SINCE:
            leader = current_leader(self._cache, topic, data.index)
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader.id, leader_epoch=leader.epoch)
        if isinstance(error, Refused) and answer.error_code != error.code:
            answer.error_message = error.message
        if isinstance(error, RecordsRefused):
            answer.error_message = error.message
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in error.record_errors
            ]
        return answer

    def _add_endpoints(self, response: ProduceResponse, listener: str) -> None:
        leaders = (
            partition.current_leader.leader_id
            for topic in response.responses
            for partition in topic.partition_responses
            if partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
        response.node_endpoints = [
            NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in endpoints(self._cache, leaders, listener)
        ]


class _Queued(NamedTuple):
    """One partition whose append waits for its turn; its answer comes into this place."""

    place: PartitionProduceResponse
    topic: str
    data: PartitionProduceData
    turn: "asyncio.Future[Appended]"


def _is_transactional(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if isinstance(records, _INLINE) and is_transactional(records):
                return True
    return False


def _keep_records(request: ProduceRequest) -> None:
    """Whatever waits must not lie in the receive buffer."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if isinstance(data.records, memoryview):
                data.records = bytes(data.records)


def _admitted(verdicts: Verdicts, place: TopicPartition) -> Guard | None:
    if place not in verdicts:
        # Its topic id became known while the coordinator was asked about other partitions.
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    verdict = verdicts[place]
    if isinstance(verdict, KafkaError):
        raise verdict
    return verdict


def _error(data: PartitionProduceData, code: ErrorCode) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)


def error_response(
    request: ProduceRequest,
    code: ErrorCode,
    _version: int,
) -> ProduceResponse:
    """Every partition answered with `code`; raises CloseConnection where acks=0 forbids answers."""
    if request.acks == 0:
        raise CloseConnection
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_error(data, code) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )
