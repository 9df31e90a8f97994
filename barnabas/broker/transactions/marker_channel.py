"""Markers for the partitions that another broker leads (WriteTxnMarkers v2, KIP-98, KIP-1228).

The same connection tells the broker in advance which producers are about to write there: their
transactions' markers come behind that.
"""

import asyncio
from collections import deque
from typing import Any, Final, Protocol

from barnabas.broker.cluster.peers import Then
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.transactions.marker_writer import NOTHING_OPEN
from barnabas.broker.transactions.request_batcher import (
    ACCEPTED,
    Element,
    Framing,
    RequestBatcher,
    Requester,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import expect_producers
from barnabas.protocol.messages.expect_producers import ExpectedProducer, ExpectProducersRequest
from barnabas.protocol.messages.write_txn_markers import (
    API,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.template import ByElement, Elements
from barnabas.protocol.topic_partition import TopicPartition

VERSION: Final = 2
MARKERS: Final = ByElement(
    API,
    VERSION,
    Elements(
        API.request, VERSION, "markers", "producer_id", "producer_epoch", "transaction_result"
    ),
    Elements(API.response, VERSION, "markers", "producer_id"),
)
"""The markers of a coordinator for one partition differ in producer and outcome only."""
MARKERS_PER_REQUEST: Final = 256
TIMEOUT_S: Final = 10.0
"""The longest wait for a response. The leader answers sooner, even if its followers are slow."""
_log = get_logger(__name__)
_Slot = tuple[int, TopicPartition]
"""The producer id and the partition, which identify a marker in a request."""


class PendingMarker(Protocol):
    """One marker that one partition does not have yet."""

    @property
    def partition(self) -> TopicPartition: ...

    @property
    def marker(self) -> TxnMarker: ...

    @property
    def wanted(self) -> bool:
        """Whether this broker still coordinates the transaction."""
        ...

    def done(self, code: ErrorCode) -> None:
        """Take the outcome, exactly once; NETWORK_EXCEPTION if it is unknown."""
        ...

    def retry(self) -> None:
        """Send the marker again: it has waited for a leader, and the partition may have one now."""
        ...


class MarkerChannel:
    """The markers for one other broker, in the order of their arrival."""

    def __init__(self, peer: Requester, *, fast: bool = True) -> None:
        """Without `fast` every request is encoded and every response decoded, in tests."""
        self._peer = peer
        self._framing = framing() if fast else None
        self._waiting: deque[PendingMarker] = deque()
        self._batcher = RequestBatcher(self._take, self._send, self._answered)
        self._expected: list[ExpectedProducer] = []
        """The producers that the broker is told of in the next iteration of the event loop."""

    def send(self, pending: PendingMarker) -> None:
        self._waiting.append(pending)
        self._batcher.notify()

    def expect(self, producer: ExpectedProducer) -> bool:
        """Tell the broker whom to expect in a partition; return whether it can be told."""
        if not self._peer.tells(expect_producers.API):
            return False
        if not self._expected:
            asyncio.get_running_loop().call_soon(self._tell)
        self._expected.append(producer)
        return True

    def _tell(self) -> None:
        producers, self._expected = self._expected, []
        while producers:
            request = ExpectProducersRequest(producers=producers[: expect_producers.MOST])
            self._peer.tell(expect_producers.API, request, version=0)
            del producers[: expect_producers.MOST]

    def abort(self) -> None:
        """Break the connection: the broker is gone, and the next leader gets its markers."""
        self._peer.abort()

    async def close(self) -> None:
        await self._peer.close()

    def _take(self) -> dict[_Slot, PendingMarker] | None:
        batch: dict[_Slot, PendingMarker] = {}
        while self._waiting and len(batch) < MARKERS_PER_REQUEST:
            pending = self._waiting.popleft()
            if pending.wanted:
                batch[pending.marker.producer_id, pending.partition] = pending
        return batch or None

    def _send(self, batch: dict[_Slot, PendingMarker], then: Then) -> None:
        # The marker of its transaction must void what a partition is told.
        self._tell()
        markers = [(each.partition, each.marker) for each in batch.values()]
        if self._framing is None:
            request = WriteTxnMarkersRequest(markers=[_asked(*each) for each in markers])
            self._peer.submit(API, request, then, version=VERSION, timeout=TIMEOUT_S)
        else:
            frames = self._framing.of(markers)
            self._peer.submit(
                API, frames.request, then, version=VERSION, timeout=TIMEOUT_S, decode=frames.decode
            )

    def _answered(self, batch: dict[_Slot, PendingMarker], answer: Any) -> None:
        """Take a WriteTxnMarkersResponse, ACCEPTED or None."""
        if answer is ACCEPTED:
            codes = dict.fromkeys(batch, ErrorCode.NONE)
        else:
            codes = {} if answer is None else _codes(answer)
        if ErrorCode.NETWORK_EXCEPTION in codes.values():
            # The leader knows a later connection of this broker, or of a client that claims its
            # name; the next one is later still.
            self._peer.abort()
        for slot, pending in batch.items():
            try:
                pending.done(codes.get(slot, ErrorCode.NETWORK_EXCEPTION))
            except Exception as error:
                # One failure must not cost the outcomes of the other markers.
                topic, index = pending.partition
                _log.error(
                    "outcome of a marker not handled", topic=topic, partition=index, exc_info=error
                )


def framing() -> Framing[tuple[TopicPartition, TxnMarker]]:
    """Return what puts requests to one broker together."""
    return Framing(MARKERS, _split, lambda each: (_asked(*each), _accepted(*each)))


def _split(placed: tuple[TopicPartition, TxnMarker]) -> Element:
    partition, (producer_id, epoch, coordinator_epoch, committed, version) = placed
    same = partition, coordinator_epoch, version
    return Element(same, (producer_id, epoch, committed), (producer_id,))


def _asked(partition: TopicPartition, marker: TxnMarker) -> WritableTxnMarker:
    topic, index = partition
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.committed,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )


def _accepted(partition: TopicPartition, marker: TxnMarker) -> WritableTxnMarkerResult:
    topic, index = partition
    result = WritableTxnMarkerPartitionResult(partition_index=index)
    results = [WritableTxnMarkerTopicResult(name=topic, partitions=[result])]
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=results)


def _codes(answer: WriteTxnMarkersResponse) -> dict[_Slot, ErrorCode]:
    # By name: a broker need not answer in the order of the request.
    return {
        (marker.producer_id, TopicPartition(topic.name, each.partition_index)): (
            NOTHING_OPEN if each.nothing_open else ErrorCode.of(each.error_code)
        )
        for marker in answer.markers
        for topic in marker.topics
        for each in topic.partitions
    }
