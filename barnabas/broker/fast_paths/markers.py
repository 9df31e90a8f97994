"""The fast path of WriteTxnMarkers between brokers: markers whose partitions were marked before.

Markers of one partition differ in producer id, epoch and outcome only. The bytes behind these
fields are remembered with what they mean, and with the bytes of the result. The writer decides each
time. What may change is asked for each time too: whether the coordinator has a later connection,
whether its epoch is known, the rules of the authorizer, and whether each marker is certainly
written and committed at once.
"""

from typing import Final, NamedTuple

from barnabas.broker.fast_paths.entries import FEW, EntriesFastPath, place_of_body
from barnabas.broker.fast_paths.wire import answer_header
from barnabas.broker.handlers.write_txn_markers import API
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.dispatch import Part
from barnabas.broker.transactions.marker_frames import (
    MARKER_HEAD,
    NO_TAGS,
    PRODUCER_ID,
    VERSION,
    marker_bytes,
)
from barnabas.broker.transactions.marker_origins import MarkerOrigins
from barnabas.broker.transactions.marker_writer import MarkerWrite, MarkerWriter
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.topic_partition import TopicPartition

_NAME_AT: Final = MARKER_HEAD.size + 1
"""The place in a marker of the length of its topic's name, behind the number of topics."""
_BESIDE_NAME: Final = 14
"""The bytes of a marker for one partition behind MARKER_HEAD, without the characters of the
name."""


class _Known(NamedTuple):
    """A partition that this coordinator has marked."""

    partition: TopicPartition
    coordinator_epoch: int
    transaction_version: int
    result: bytes
    """The bytes of the result without an error, behind the producer id."""


class MarkersFastPath(EntriesFastPath[_Known]):
    """The fast path of one connection. Partitions are known by the bytes of a marker behind
    MARKER_HEAD."""

    def __init__(self, writer: MarkerWriter, origins: MarkerOrigins, version: int) -> None:
        super().__init__(version)
        self._writer = writer
        self._origins = origins
        self._answer_header = answer_header(API, version)

    def serve(self, frame: memoryview, _received_ms: int) -> list[Part] | None:
        """Write markers that are certainly written at once; return the answer, else None."""
        data = bytes(frame)
        pos, end, context = self._begin(data), len(data), self._context
        if not pos or context is None:
            return None
        count = data[pos] - 1
        writes: list[MarkerWrite] = []
        codes: list[ErrorCode] = []
        results = [self._answer_header, data[pos : pos + 1]]
        pos += 1
        for _ in range(count):
            if pos + _NAME_AT >= end:
                return None
            producer_id, epoch, outcome = MARKER_HEAD.unpack_from(data, pos)
            behind = pos + MARKER_HEAD.size + _BESIDE_NAME + data[pos + _NAME_AT] - 1
            known = self._known.get(data[pos + MARKER_HEAD.size : behind])
            if known is None or outcome > 1 or not self._origins.has_epoch(known[1]):
                return None
            partition, coordinator_epoch, version, result = known
            marker = TxnMarker(producer_id, epoch, coordinator_epoch, outcome == 1, version)
            writes.append(MarkerWrite(partition, marker, codes.append))
            results += data[pos : pos + PRODUCER_ID], result
            pos = behind
        if (
            data[pos:] != NO_TAGS
            or self._origins.is_outdated(context)
            or not self._writer.accepts(writes)
        ):
            return None
        for _ in self._writer.write(writes):
            pass
        if len(codes) < count or any(codes):
            # A marker is fenced, or a disk has failed. The handler says so; a marker that is
            # written twice ends nothing the second time.
            return None
        results.append(NO_TAGS)
        return self._answer(data, results)

    def learn(
        self,
        frame: memoryview,
        request: WriteTxnMarkersRequest,
        context: RequestContext,
        response: WriteTxnMarkersResponse,
    ) -> None:
        """Remember the partitions of a coordinator's request that was carried out."""
        self._credit += 1
        if self._version != VERSION or not context.inter_broker or len(request.markers) > FEW:
            return
        body_at = place_of_body(frame, request, VERSION)
        if not body_at:
            return
        found = {}
        for marker, result in zip(request.markers, response.markers, strict=True):
            topics, results = marker.topics, result.topics
            if (
                len(topics) != 1
                or len(topics[0].partition_indexes) != 1
                or results[0].partitions[0].error_code
            ):
                return
            place = TopicPartition(topics[0].name, topics[0].partition_indexes[0])
            epoch, version = marker.coordinator_epoch, marker.transaction_version
            behind, answer = marker_bytes(place, epoch, version)
            if len(behind) == _BESIDE_NAME + len(place.topic.encode()):
                found[behind] = _Known(place, epoch, version, answer)
        if self._has_room(len(found)):
            self._known.update(found)
            self._remember(frame, body_at, context)
