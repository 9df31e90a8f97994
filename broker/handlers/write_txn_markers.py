"""WriteTxnMarkers (key 27): ends of transactions, from their coordinator or from an operator.

An operator's (KIP-664) ends a transaction in one partition, whatever its coordinator thinks of it.
Errors by partition as `MarkerWriter` tells them. To a coordinator REQUEST_TIMED_OUT too: many
transactions share its request, and a partition whose followers are slow must not hold up the
answers of the others. The marker may be committed all the same, and a second one does no harm.
"""

import asyncio
from typing import Final

from barnabas.broker.coordination.marker_writer import MarkerWriter, TxnMarker
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import Soon
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

__all__ = ["API", "SERVES", "WriteTxnMarkersHandler", "error_response"]

SERVES = range(1, 3)
PATIENCE_S: Final = 1.0
"""Until a coordinator is told of what is not committed by then."""


class WriteTxnMarkersHandler:
    """Answers when the last marker is committed or refused, a coordinator in time."""

    def __init__(self, writer: MarkerWriter) -> None:
        self._writer = writer
        self._newest: dict[str | None, int] = {}
        """By the name of a broker, the latest connection on which it sent markers."""

    def handle(
        self,
        request: WriteTxnMarkersRequest,
        context: RequestContext,
    ) -> Soon[WriteTxnMarkersResponse]:
        if context.inter_broker and self._is_given_up(context):
            return _results(request, ErrorCode.NETWORK_EXCEPTION)
        response = _results(request, ErrorCode.REQUEST_TIMED_OUT)
        open_results = _OpenResults(response, context.api_version)
        for marker, result in zip(request.markers, response.markers, strict=True):
            end = TxnMarker(
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.transaction_result,
                marker.transaction_version,
            )
            for topic in result.topics:
                for each in topic.partitions:
                    open_results.open += 1
                    self._writer.write(
                        topic.name, each.partition_index, end, open_results.done(each)
                    )
        return open_results.answer(PATIENCE_S if context.inter_broker else None)

    def _is_given_up(self, context: RequestContext) -> bool:
        """A broker has one line for markers: what comes over an older one was held up somewhere,
        and has been sent again. Of the older protocol it could end the producer's next transaction.
        """
        newest = self._newest.get(context.client_id, context.connection_id)
        self._newest[context.client_id] = max(newest, context.connection_id)
        return context.connection_id < newest


class _OpenResults:
    """Counts what is not written yet."""

    def __init__(self, response: WriteTxnMarkersResponse, version: int) -> None:
        self.open = 0
        self.version = version
        self._response = response
        self._future: asyncio.Future[WriteTxnMarkersResponse] | None = None

    def done(self, result: WritableTxnMarkerPartitionResult) -> "_Done":
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
    """Takes the outcome of one marker."""

    __slots__ = ("_open_results", "_result")

    def __init__(
        self, open_results: _OpenResults, result: WritableTxnMarkerPartitionResult
    ) -> None:
        self._open_results = open_results
        self._result = result

    def __call__(self, code: ErrorCode) -> None:
        self._result.error_code = downgrade(API.key, self._open_results.version, code)
        self._open_results.settle()


def _results(request: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[_of_marker(marker, code) for marker in request.markers])


def _of_marker(marker: WritableTxnMarker, code: ErrorCode) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=each, error_code=code)
                    for each in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )


def error_response(
    request: WriteTxnMarkersRequest, code: ErrorCode, _version: int
) -> WriteTxnMarkersResponse:
    """The error for every partition."""
    return _results(request, code)
