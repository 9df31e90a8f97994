"""WriteTxnMarkers (key 27): write transaction markers for a coordinator or an operator.

An operator's marker (KIP-664) ends a transaction in one partition, without its coordinator. Errors
by partition as in `MarkerWriter.write`. A coordinator may also get REQUEST_TIMED_OUT: many
transactions share its request, and a partition with slow followers must not delay the others. The
marker may be committed all the same, and a second one does no harm. On the inter-broker listener a
coordinator epoch that no coordinator has yet is answered COORDINATOR_NOT_AVAILABLE. With
`transaction.refuse.future.markers` an operator's marker has the epochs that DescribeProducers
shows, or 0: a newer one is INVALID_REQUEST.
"""

# The annotations of nested functions would be evaluated at each call.
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from barnabas.broker.security.rights import ALTER, CLUSTER, CLUSTER_ACTION, Each, Need, Rights
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.repeats import FEW, RepeatByElement
from barnabas.broker.transactions.marker_channel import MARKERS
from barnabas.broker.transactions.marker_origins import MarkerOrigins
from barnabas.broker.transactions.marker_writer import NOTHING_OPEN, MarkerWrite, MarkerWriter
from barnabas.coordinator.soon import Soon, settle
from barnabas.protocol.errors import ErrorCode, downgrade
from barnabas.protocol.messages.write_txn_markers import (
    API,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.steps import Steps, at_once, in_steps
from barnabas.protocol.topic_partition import TopicPartition

__all__ = ["API", "RIGHTS", "again", "handle"]

PATIENCE_S: Final = 1.0
"""The longest wait in seconds of a coordinator for markers to be committed."""


def handle(
    writer: MarkerWriter,
    origins: MarkerOrigins,
    refuse_future: bool,
    request: WriteTxnMarkersRequest,
    context: RequestContext,
) -> Soon[WriteTxnMarkersResponse] | Steps[WriteTxnMarkersResponse]:
    """Answer when the last marker is committed or refused; answer a coordinator in time.

    `refuse_future` says that operators' markers may not have epochs that the partition does not
    know.
    """
    steps = _write(writer, origins, refuse_future, request, context)
    return at_once(steps) if _is_short(request) else settle(steps)


def _is_short(request: WriteTxnMarkersRequest) -> bool:
    left = FEW - len(request.markers)
    for marker in request.markers:
        if left < len(marker.topics):
            return False
        left -= sum([len(topic.partition_indexes) for topic in marker.topics])
    return left >= 0


def _write(
    writer: MarkerWriter,
    origins: MarkerOrigins,
    refuse_future: bool,
    request: WriteTxnMarkersRequest,
    context: RequestContext,
) -> Steps[Soon[WriteTxnMarkersResponse]]:
    inter_broker = context.inter_broker
    if inter_broker and origins.is_outdated(context):
        return (yield from _results(request, ErrorCode.NETWORK_EXCEPTION))
    response = yield from _results(request, ErrorCode.REQUEST_TIMED_OUT)
    results = _OpenResults(response, context)
    writes: list[MarkerWrite] = []
    for marker, result in zip(request.markers, response.markers, strict=True):
        yield None
        end = TxnMarker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            marker.transaction_version,
        )
        unknown_epoch = inter_broker and not origins.has_epoch(end.coordinator_epoch)
        for topic in result.topics:
            yield None
            for each in topic.partitions:
                yield None
                partition = TopicPartition(topic.name, each.partition_index)
                if unknown_epoch:
                    each.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                elif refuse_future and not inter_broker and writer.would_fence(partition, end):
                    each.error_code = ErrorCode.INVALID_REQUEST
                else:
                    writes.append(MarkerWrite(partition, end, results.done(each)))
    for _ in writer.write(writes):
        yield None
        # The coordinator may have sent the rest over a later connection meanwhile.
        if inter_broker and origins.is_outdated(context):
            return (yield from _results(request, ErrorCode.NETWORK_EXCEPTION))
    return results.answer(PATIENCE_S if inter_broker else None)


def again(
    writer: MarkerWriter,
    origins: MarkerOrigins,
    _refuse_future: bool,
    request: WriteTxnMarkersRequest,
    context: RequestContext,
    response: WriteTxnMarkersResponse,
) -> RepeatByElement | None:
    """Serve a coordinator whose markers for one partition differ in producer and outcome only."""
    if context.api_version != MARKERS.version or not context.inter_broker:
        return None
    known = []
    for marker, result in zip(request.markers, response.markers, strict=True):
        topics, results = marker.topics, result.topics
        if (
            len(topics) != 1
            or len(topics[0].partition_indexes) != 1
            or results[0].partitions[0].error_code
        ):
            return None
        partition = TopicPartition(topics[0].name, topics[0].partition_indexes[0])
        known.append((partition, marker.coordinator_epoch, marker.transaction_version))
    return RepeatByElement(partial(_write_again, writer, origins, context), MARKERS, known)


def _write_again(
    writer: MarkerWriter,
    origins: MarkerOrigins,
    context: RequestContext,
    asked: Sequence[tuple[Any, tuple[int, int, bool]]],
    now_ms: int,
) -> Sequence[tuple[int]] | None:
    """Write markers, if each of them is certainly written and committed at once."""
    markers: list[tuple[TopicPartition, TxnMarker]] = []
    for (partition, coordinator_epoch, version), (producer_id, epoch, committed) in asked:
        if not origins.has_epoch(coordinator_epoch) or producer_id < 0:
            return None
        marker = TxnMarker(producer_id, epoch, coordinator_epoch, committed, version)
        markers.append((partition, marker))
    # A single one is refused without a change.
    if origins.is_outdated(context) or (len(markers) > 1 and not writer.accepts(markers, now_ms)):
        return None
    for each in markers:
        if not writer.put(*each, now_ms):
            # A disk has failed; a marker that is written twice ends nothing the second time.
            return None
    return [(marker.producer_id,) for _, marker in markers]


class _OpenResults:
    """The results of a request, and the number of markers that are not written yet."""

    def __init__(self, response: WriteTxnMarkersResponse, context: RequestContext) -> None:
        self.open = 0
        self.version = context.api_version
        self.for_coordinator = context.inter_broker
        self._response = response
        self._future: asyncio.Future[WriteTxnMarkersResponse] | None = None

    def done(self, result: WritableTxnMarkerPartitionResult) -> _Done:
        """Return the callback for one more result."""
        self.open += 1
        return _Done(self, result)

    def settle(self) -> None:
        self.open -= 1
        if not self.open:
            self._give()

    def answer(self, patience: float | None) -> Soon[WriteTxnMarkersResponse]:
        if not self.open:
            return self._response
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        if patience is not None:
            timer = loop.call_later(patience, self._give)
            self._future.add_done_callback(lambda _: timer.cancel())
        return self._future

    def _give(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(self._response)


class _Done:
    """The callback for the result of one marker."""

    __slots__ = ("_open_results", "_result")

    def __init__(
        self, open_results: _OpenResults, result: WritableTxnMarkerPartitionResult
    ) -> None:
        self._open_results = open_results
        self._result = result

    def __call__(self, code: ErrorCode) -> None:
        if code is NOTHING_OPEN:
            # Kafka's code, also for Kafka's tools.
            code = ErrorCode.INVALID_PRODUCER_EPOCH
            self._result.nothing_open = self._open_results.for_coordinator
        self._result.error_code = downgrade(API.key, self._open_results.version, code)
        self._open_results.settle()


def _results(request: WriteTxnMarkersRequest, code: ErrorCode) -> Steps[WriteTxnMarkersResponse]:
    response = WriteTxnMarkersResponse(markers=[])
    for marker in request.markers:
        response.markers.append((yield from _result(marker, code)))
    return response


def _result(marker: WritableTxnMarker, code: ErrorCode) -> Steps[WritableTxnMarkerResult]:
    def result_of(index: int) -> WritableTxnMarkerPartitionResult:
        return WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)

    yield None
    result = WritableTxnMarkerResult(producer_id=marker.producer_id, topics=[])
    for topic in marker.topics:
        yield None
        partitions = yield from in_steps(result_of, topic.partition_indexes)
        result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
    return result


RIGHTS = Rights(
    whole=(Need(CLUSTER_ACTION, CLUSTER, unless=Need(ALTER, CLUSTER)),),
    each=Each("markers", (), lambda marker, code, _: _result(marker, code), "markers"),
)
