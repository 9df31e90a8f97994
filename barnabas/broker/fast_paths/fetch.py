"""The fast path of Fetch: a consumer that goes on reading one partition.

Successive requests for one partition are equal but for correlation id, session epoch and offset.
What else they say is remembered, with the session and the bytes of the answer around its offsets
and records. Only requests that find records at once are served here; a short range is read from the
file in one go, together with the ends of its batches. Everything that may change is asked for each
time: the replica and its leadership, the topic of an id, the session, and the authorizer's rules.
"""

from collections.abc import Callable
from copy import copy
from functools import lru_cache
from struct import Struct
from typing import Any, Final, NamedTuple

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.fast_paths.wire import CONTENT_AT, LENGTH, answer_header, records_length
from barnabas.broker.handlers.fetch import Parts
from barnabas.broker.replication.leader.consumer_read import READ_COMMITTED
from barnabas.broker.replication.leader.fetch_session import (
    FINAL_EPOCH,
    NO_SESSION,
    TOPIC_IDS_SINCE,
    FetchedPartition,
    FetchSession,
)
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.server.context import Asker, RequestContext
from barnabas.broker.server.dispatch import Part
from barnabas.broker.server.slice_reader import MIN_CHUNK
from barnabas.protocol.codec import encode
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.header import decode_request_header
from barnabas.protocol.messages.fetch import (
    API,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.storage.log.log_slice import LogSlice

SINCE: Final = 7
"""The first version on this path: it has sessions, and the log start offset."""
LARGEST_REQUEST: Final = 1024
"""The bytes of a request that is remembered at most; most have about 100."""
COST: Final = 32
"""The requests after which another one may take the place of the one that is remembered."""
_OFFSETS: Final = Struct(">qqq")
_MARKS: Final = _OFFSETS.pack(-0x5EED_5EED, -0x5EED_5EEE, -0x5EED_5EEF)
_MARKED: Final = _OFFSETS.unpack(_MARKS)
"""Offsets that no answer has: they mark the place of the real ones."""
_RECORDS: Final = b"\x5e\xed" * 8
_MARKED_EPOCH, _MARKED_OFFSET = -0x5EED_5EED, -0x0FAB_0FAB_0FAB
"""A session epoch and an offset that no request has."""
_EPOCH: Final = Struct(">i").pack(_MARKED_EPOCH)
_OFFSET: Final = Struct(">q").pack(_MARKED_OFFSET)


class _Known(NamedTuple):
    """A request that the connection has sent, and what its answer shares with the next one."""

    size: int
    unpack: Callable[[memoryview], tuple[Any, ...]]
    constant: tuple[bytes, bytes, bytes]
    """The request's bytes before the session epoch, up to the offset, and behind it."""
    partition: Partition
    place: tuple[str, int]
    leader_epoch: int
    topic_id: bytes | None
    """None in versions that name the topic."""
    session: FetchSession | None
    fetched: FetchedPartition | None
    wanted: FetchPartition
    read_committed: bool
    min_bytes: int
    max_bytes: int
    asker: Asker | None
    standing: object
    """The rules by which the request was allowed."""
    pack: Callable[..., bytes]
    around: int
    """The answer's bytes after its length, without the records and their length."""
    head: bytes
    middle: bytes
    tail: bytes
    """The answer's bytes before its offsets, up to the length of the records, and behind them."""


@lru_cache(1024)
def _unpacker(first: int, second: int, third: int) -> Struct:
    return Struct(f">4xi{first}si{second}sq{third}s")


@lru_cache(1024)
def _packer(head: int, middle: int) -> Callable[..., bytes]:
    return Struct(f">ii{head}sqqq{middle}s").pack


def _is_for_one(request: FetchRequest, response: FetchResponse) -> bool:
    """Return whether a consumer asked for one partition, and got records of it.

    A session answers for partitions that a request does not name.
    """
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    if len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
        return False
    (answer,) = response.responses[0].partitions
    return not (
        answer.error_code
        or not answer.records
        or request.forgotten_topics_data
        or request.rack_id
        or max(request.replica_id, request.replica_state.replica_id) >= 0
    )


class FetchFastPath:
    """The fast path of one connection."""

    __slots__ = ("_cache", "_credit", "_flexible", "_known", "_parts", "_replicas", "_version")

    def __init__(
        self, parts: Parts, replicas: ReplicaManager, cache: MetadataCache, version: int
    ) -> None:
        self._parts = parts
        self._replicas = replicas
        self._cache = cache
        self._version = version
        self._flexible = API.is_flexible(version)
        self._known: _Known | None = None
        self._credit = COST

    def serve(self, frame: memoryview, received_ms: int) -> list[Part] | None:
        """Read from the consumer's offset; return the answer, else None."""
        known = self._known
        if known is None or len(frame) != known.size:
            return None
        correlation_id, first, epoch, second, offset, third = known.unpack(frame)
        if (first, second, third) != known.constant or not self._holds(known, epoch):
            return None
        records = self._read(known, offset)
        if records is None:
            return None
        self._credit += 1
        partition, size = known.partition, len(records)
        log, cells = partition.log, partition.cells
        cells.fetches.value += 1
        cells.bytes_out.value += size
        session, fetched = known.session, known.fetched
        if session is not None and fetched is not None:
            known.wanted.fetch_offset = offset
            fetched.update(known.wanted)
            fetched.high_watermark = log.high_watermark
            fetched.log_start_offset = log.log_start_offset
            self._parts.sessions.used(session, received_ms)
        length = records_length(size, flexible=self._flexible)
        start = known.pack(
            known.around + len(length) + size, correlation_id, known.head,
            log.high_watermark, log.last_stable_offset, log.log_start_offset, known.middle,
        )  # fmt: skip
        if isinstance(records, LogSlice):
            return [start + length, records, known.tail]
        return [b"".join((start, length, records, known.tail))]

    def _holds(self, known: _Known, epoch: int) -> bool:
        """Return whether what is remembered holds, for a request with this session epoch."""
        partition, place, topic_id = known.partition, known.place, known.topic_id
        asker, standing = known.asker, known.standing
        if (
            self._replicas.find(place) is not partition
            or not partition.is_leader
            or partition.leader_epoch != known.leader_epoch
            or (topic_id is not None and self._cache.topic_name(topic_id) != place[0])
            or (asker is not None and (standing is None or asker.standing() is not standing))
        ):
            return False
        last_epoch = known.wanted.last_fetched_epoch
        if last_epoch >= 0 and last_epoch != partition.log.epochs.latest_epoch:
            return False
        session, fetched = known.session, known.fetched
        if session is None or fetched is None:
            return epoch == FINAL_EPOCH
        return self._parts.sessions.is_next(session, epoch, fetched)

    def _read(self, known: _Known, offset: int) -> bytes | bytearray | LogSlice | None:
        """Return the records of an answer that does not wait and names no aborted transaction."""
        log = known.partition.log
        limit = min(known.max_bytes, self._parts.max_bytes())
        end = log.last_stable_offset if known.read_committed else log.high_watermark
        if offset >= end:
            return None
        max_bytes = min(known.wanted.partition_max_bytes, limit)
        records: bytes | bytearray | LogSlice
        at_hand = log.read_at_hand(offset, max_bytes, MIN_CHUNK, limit=end)
        if at_hand is not None:
            records, end_offset = at_hand
        else:
            try:
                records = found = log.read(offset, max_bytes, limit=end)
            except KafkaError:
                return None
            end_offset = found.end_offset
        size = len(records)
        if size < known.min_bytes and size < limit:
            return None
        if known.read_committed and log.aborted_transactions(offset, end_offset):
            return None
        return records

    def learn(
        self,
        frame: memoryview,
        request: FetchRequest,
        context: RequestContext,
        response: FetchResponse,
    ) -> None:
        """Remember a consumer's request for one partition that has found records."""
        self._credit += 1
        if self._credit < COST or len(frame) > LARGEST_REQUEST:
            return
        if self._version < SINCE or not _is_for_one(request, response):
            return
        (topic,) = request.topics
        (wanted,) = topic.partitions
        by_id = self._version >= TOPIC_IDS_SINCE
        name = self._cache.topic_name(topic.topic_id) if by_id else topic.topic
        partition = None if name is None else self._replicas.find((name, wanted.partition))
        if name is None or partition is None:
            return
        if by_id and partition.topic_id != topic.topic_id:
            return
        session = fetched = None
        if request.session_epoch != FINAL_EPOCH or request.session_id != NO_SESSION:
            session = self._parts.sessions.get(request.session_id)
            if session is None or session.owner.replica_id >= 0 or len(session.partitions) != 1:
                return
            (fetched,) = session.partitions.values()
        constant = self._constant(frame, request)
        if constant is None:
            return
        self._credit = 0
        asker = context.asker
        head, middle, tail = self._around_records(request, response)
        unpacker = _unpacker(*map(len, constant))
        self._known = _Known(
            size=unpacker.size,
            unpack=unpacker.unpack,
            constant=constant,
            partition=partition,
            place=(name, wanted.partition),
            leader_epoch=partition.leader_epoch,
            topic_id=topic.topic_id if by_id else None,
            session=session,
            fetched=fetched,
            wanted=wanted,
            read_committed=request.isolation_level == READ_COMMITTED,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            asker=asker,
            standing=None if asker is None else asker.standing(),
            pack=_packer(len(head), len(middle)),
            around=LENGTH.size + len(head) + _OFFSETS.size + len(middle) + len(tail),
            head=head,
            middle=middle,
            tail=tail,
        )

    def _constant(
        self, frame: memoryview, request: FetchRequest
    ) -> tuple[bytes, bytes, bytes] | None:
        """Return the bytes that the next request has in common with this one.

        None if the marks are among them.
        """
        _, body = decode_request_header(frame)
        marked = self._marked(request)
        if marked.count(_EPOCH) != 1 or marked.count(_OFFSET) != 1:
            return None
        before, _, rest = marked.partition(_EPOCH)
        between, _, behind = rest.partition(_OFFSET)
        return bytes(frame[CONTENT_AT:body]) + before, between, behind

    def _marked(self, request: FetchRequest) -> bytes:
        """Return the bytes of a request with marks in place of session epoch and offset."""
        request = copy(request)
        (topic,) = request.topics = [copy(request.topics[0])]
        (wanted,) = topic.partitions = [copy(topic.partitions[0])]
        request.session_epoch, wanted.fetch_offset = _MARKED_EPOCH, _MARKED_OFFSET
        return encode(request, self._version)

    def _around_records(
        self, request: FetchRequest, response: FetchResponse
    ) -> tuple[bytes, bytes, bytes]:
        """Return the bytes of the answer before its offsets, from there to the length of the
        records, and behind the records."""
        (topic,) = response.responses
        (answer,) = topic.partitions
        high_watermark, last_stable, start = _MARKED
        answer = PartitionData(
            partition_index=answer.partition_index,
            high_watermark=high_watermark,
            last_stable_offset=last_stable,
            log_start_offset=start,
            aborted_transactions=[] if request.isolation_level == READ_COMMITTED else None,
            records=_RECORDS,
        )
        topic = FetchableTopicResponse(
            topic=topic.topic, topic_id=topic.topic_id, partitions=[answer]
        )
        body = encode(
            FetchResponse(session_id=response.session_id, responses=[topic]), self._version
        )
        head, _, rest = body.partition(_MARKS)
        length = records_length(len(_RECORDS), flexible=self._flexible)
        middle, _, tail = rest.partition(length + _RECORDS)
        return answer_header(API, self._version) + head, middle, tail
