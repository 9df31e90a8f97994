"""WriteTxnMarkers requests between brokers, put together from bytes that repeat.

The markers of a coordinator for one partition differ in producer id, epoch and outcome only.
Everything behind these fields is encoded once, and so is the answer to a marker that is written.
"""

from collections.abc import Collection
from struct import Struct
from typing import Any, Final, NamedTuple

from barnabas.protocol.codec import decode, encode
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
from barnabas.protocol.topic_partition import TopicPartition

VERSION: Final = 2
MOST: Final = 100
"""The elements of a request that is put together: their number fits into one byte."""
REMEMBERED: Final = 4096
"""The elements whose bytes are remembered."""
NO_TAGS: Final = b"\0"
ACCEPTED: Final = object()
"""Stands for an answer without any error."""
MARKER_HEAD: Final = Struct(">qhB")
"""Producer id, producer epoch and outcome, with which a marker begins."""
PRODUCER_ID: Final = 8
"""The size of the producer id, with which a result begins."""


def count_of(elements: int) -> bytes:
    """Return the length field of an array."""
    return bytes((elements + 1,))


class Frames(NamedTuple):
    """The body of a request, and that of its answer if nothing is refused."""

    request: bytes
    accepted: bytes
    response: type
    version: int

    def decode(self, data: bytes, offset: int) -> Any:
        """Decode an answer; return ACCEPTED if it is the one without an error."""
        if data[offset:] == self.accepted:
            return ACCEPTED
        return decode(self.response, self.version, data, offset)


def marker_bytes(
    partition: TopicPartition, coordinator_epoch: int, transaction_version: int
) -> tuple[bytes, bytes]:
    """Return the bytes of a marker behind MARKER_HEAD, and those of its result behind the producer
    id."""
    topic, index = partition
    asked = WritableTxnMarker(
        producer_id=0,
        producer_epoch=0,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    result = WritableTxnMarkerResult(
        producer_id=0,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic, partitions=[WritableTxnMarkerPartitionResult(partition_index=index)]
            )
        ],
    )
    request = encode(WriteTxnMarkersRequest(markers=[asked]), VERSION)
    response = encode(WriteTxnMarkersResponse(markers=[result]), VERSION)
    around = len(count_of(1)), -len(NO_TAGS)
    return (
        request[around[0] + MARKER_HEAD.size : around[1]],
        response[around[0] + PRODUCER_ID : around[1]],
    )


class MarkerFrames:
    """The requests to one broker."""

    def __init__(self) -> None:
        self._known: dict[tuple[TopicPartition, int, int], tuple[bytes, bytes]] = {}

    def of(self, markers: Collection[tuple[TopicPartition, TxnMarker]]) -> Frames | None:
        """Return the request with one entry for each marker.

        None if it is to be encoded, for example because partitions share a marker.
        """
        if len(markers) > MOST or len({each.producer_id for _, each in markers}) < len(markers):
            return None
        count = count_of(len(markers))
        asked, accepted = [count], [count]
        for partition, marker in markers:
            producer_id, epoch, coordinator_epoch, committed, version = marker
            key = (partition, coordinator_epoch, version)
            known = self._known.get(key)
            if known is None:
                if len(self._known) >= REMEMBERED:
                    self._known.clear()
                known = self._known[key] = marker_bytes(*key)
            head = MARKER_HEAD.pack(producer_id, epoch, committed)
            asked += head, known[0]
            accepted += head[:PRODUCER_ID], known[1]
        asked.append(NO_TAGS)
        accepted.append(NO_TAGS)
        return Frames(b"".join(asked), b"".join(accepted), API.response, VERSION)
