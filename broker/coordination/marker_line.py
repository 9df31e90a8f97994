"""Markers for the partitions that another broker leads (WriteTxnMarkers v2, KIP-98, KIP-1228)."""

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from barnabas.broker.coordination.line import Asked, Line, asked
from barnabas.broker.coordination.marker_writer import TxnMarker
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.write_txn_markers import (
    API,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.protocol.topic_partition import TopicPartition

MARKERS_PER_REQUEST: Final = 256
TIMEOUT_S: Final = 10.0
"""Until an answer is given up. The leader itself answers sooner, whatever its followers do."""
_VERSION: Final = 2
_log = get_logger(__name__)
_Slot = tuple[int, TopicPartition]
"""What tells a marker from the others of a request: its producer id and its partition."""


class Errand(Protocol):
    """One marker for one partition."""

    @property
    def place(self) -> TopicPartition: ...

    @property
    def marker(self) -> TxnMarker: ...

    @property
    def wanted(self) -> bool:
        """Whether the coordinator that sends it still coordinates its transaction."""
        ...

    def done(self, code: ErrorCode) -> None:
        """Told the outcome exactly once, if it is still wanted; NETWORK_EXCEPTION where it is
        unknown."""
        ...

    def again(self) -> None:
        """It has waited in vain, and may be carried anew."""
        ...


class MarkerLine:
    """Errands to one broker, in the order they came."""

    def __init__(self, peer: Asked) -> None:
        self._peer = peer
        self._waiting: deque[Errand] = deque()
        self._line = Line(self._take, self._carry)

    def put(self, errand: Errand) -> None:
        self._waiting.append(errand)
        self._line.due()

    def abort(self) -> None:
        """The broker is gone: whatever it was told is told to the next leader."""
        self._peer.abort()

    async def close(self) -> None:
        await self._peer.close()

    def _take(self) -> dict[_Slot, Errand] | None:
        batch: dict[_Slot, Errand] = {}
        while self._waiting and len(batch) < MARKERS_PER_REQUEST:
            errand = self._waiting.popleft()
            if errand.wanted:
                batch[errand.marker.producer_id, errand.place] = errand
        return batch or None

    async def _carry(self, batch: dict[_Slot, Errand]) -> None:
        answer = await asked(
            self._peer, API, _request(batch.values()), version=_VERSION, timeout=TIMEOUT_S
        )
        codes = {} if answer is None else _codes(answer)
        for slot, errand in batch.items():
            try:
                errand.done(codes.get(slot, ErrorCode.NETWORK_EXCEPTION))
            except Exception as error:
                # The others have outcomes of their own.
                topic, index = errand.place
                _log.error(
                    "outcome of a marker not told", topic=topic, partition=index, exc_info=error
                )


def _request(errands: Iterable[Errand]) -> WriteTxnMarkersRequest:
    """One entry for each marker, with all of its partitions here."""
    topics: dict[TxnMarker, dict[str, list[int]]] = {}
    for errand in errands:
        topic, index = errand.place
        topics.setdefault(errand.marker, {}).setdefault(topic, []).append(index)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.committed,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                    for name, indexes in partitions.items()
                ],
            )
            for marker, partitions in topics.items()
        ]
    )


def _codes(answer: WriteTxnMarkersResponse) -> dict[_Slot, ErrorCode]:
    # By name: a broker need not answer in the order in which it was asked.
    return {
        (marker.producer_id, (topic.name, each.partition_index)): ErrorCode.of(each.error_code)
        for marker in answer.markers
        for topic in marker.topics
        for each in topic.partitions
    }
