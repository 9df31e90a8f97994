"""The fast path of Produce: the next batch for a partition that the connection has written to.

Successive requests for one partition are equal but for correlation id and batch, and so are their
answers but for the offset. What they share is remembered: the bytes before the records, the
partition, and the bytes of the answer around the offset. A request on this path is unpacked,
appended and answered by one call each. Everything that may change is asked for each time: the
standing of the replica, and the rules of the authorizer. A batch that the partition refuses is left
to the handler, which says why: a refusal changes nothing.
"""

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, Final, NamedTuple

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.replication.partition import Standing
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.server.context import Asker, RequestContext
from barnabas.broker.server.dispatch import Part
from barnabas.broker.transactions.produce_verification import ADDS_SINCE
from barnabas.protocol.codec import encode
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.header import decode_request_header, encode_response_header
from barnabas.protocol.messages.produce import (
    API,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    CorruptRecordError,
    begins_transactional,
    read_header,
)
from barnabas.protocol.template import COMPACT_LENGTH, LENGTH
from barnabas.storage.producers.verification import Opener

CONTENT_AT: Final = 8
"""The place in a request behind API, version and correlation id."""
SINCE: Final = 7
"""The first version on this path: it knows all codecs, and the log start offset."""
LARGEST_PREFIX: Final = 512
"""The bytes before the records that are remembered at most; most requests have about 60."""
MOST: Final = 16
"""The partitions that a connection remembers."""
COST: Final = 32
"""The requests after which another partition may take the place of those."""
_LONGEST_LENGTH: Final = 5
"""Bytes of a length field."""
_TAGS: Final = Struct(">3s")
_NO_TAGS: Final = bytes(3)
"""The end of a request in flexible versions: the tags of partition, topic and request."""
_OFFSETS: Final = Struct(">qqq")
_MARKS: Final = _OFFSETS.pack(-0x5EED_5EED, NO_TIMESTAMP, -0x5EED_5EEE)
_MARKED: Final = _OFFSETS.unpack(_MARKS)
"""Offsets that no answer has: they mark the place of the real ones."""


class _Known(NamedTuple):
    """A partition that the connection has written to."""

    place: tuple[str, int]
    standing: Standing
    """The partition's, which is prompt. A topic that is made anew has partitions with others."""
    opener: Opener | None
    """The owner of the transaction that the batches belong to. None if the client's right to it was
    not asked for: the batch that was remembered had no transaction."""
    asker: Asker | None
    rights: object
    """The rules by which the request was allowed."""
    pack: Callable[..., bytes]
    size: int
    """The answer's bytes after its length."""
    head: bytes
    tail: bytes
    """The answer's bytes before and behind its offsets, without length and correlation id."""


@lru_cache(1024)
def _unpacker(prefix: int, width: int) -> Callable[[memoryview], tuple[Any, ...]]:
    """Return a function that unpacks correlation id, prefix and length of the records."""
    return Struct(f">4xi{prefix}s{width}s").unpack_from


@lru_cache(1024)
def _packer(head: int, tail: int) -> Callable[..., bytes]:
    return Struct(f">ii{head}sqqq{tail}s").pack


class ProduceFastPath:
    """The fast path of one connection."""

    __slots__ = (
        "_cache",
        "_credit",
        "_flexible",
        "_known",
        "_prefix",
        "_replicas",
        "_tail",
        "_version",
    )

    def __init__(self, replicas: ReplicaManager, cache: MetadataCache, version: int) -> None:
        self._replicas = replicas
        self._cache = cache
        self._version = version
        self._flexible = API.is_flexible(version)
        self._tail = len(_NO_TAGS) if self._flexible else 0
        self._known: dict[bytes, _Known] = {}
        """The partitions by the bytes before their records."""
        self._prefix = LARGEST_PREFIX
        """The size of these bytes in the last request that was remembered."""
        self._credit = COST

    def serve(self, frame: memoryview, received_ms: int) -> list[Part] | None:
        """Append a batch that is certainly the next one; return the answer, else None."""
        size = len(frame)
        # The length of the records and the records: how many bytes the first has tells the sum.
        rest = size - self._tail - CONTENT_AT - self._prefix
        if rest < HEADER_SIZE + _LONGEST_LENGTH:
            return None
        width = (rest.bit_length() + 6) // 7 if self._flexible else 4
        correlation_id, prefix, length = _unpacker(self._prefix, width)(frame)
        known = self._known.get(prefix)
        records = rest - width
        if known is None or (
            length != COMPACT_LENGTH(records + 1)
            or _TAGS.unpack_from(frame, size - 3)[0] != _NO_TAGS
            if self._flexible
            else length != LENGTH.pack(records)
        ):
            return None
        place, standing, opener, asker, rights, pack, answer, head, tail = known
        partition = self._replicas.find(place)
        if (
            partition is None
            or standing is not partition.standing
            or partition.appends
            or (asker is not None and (rights is None or asker.standing() is not rights))
        ):
            return None
        at = size - self._tail - records
        batch, guard = frame[at : at + records], None
        producers = partition.log.producers
        try:
            header = read_header(batch)
            producer_id = header.producer_id
            if header.attributes & TRANSACTIONAL:
                if (opened := producers.opener(producer_id)) is None:
                    guard = producers.expected(producer_id, header.producer_epoch, opener)
                    if guard is None:
                        return None
                elif opened != opener:
                    return None
            if producer_id >= 0 and producers.entry(producer_id) is None:
                # The handler limits the number of new producers.
                return None
            appended = partition.append(batch, now_ms=received_ms, header=header, guard=guard)
        except (CorruptRecordError, KafkaError):
            return None
        first_offset, _, append_time, log_start_offset, duplicate = appended
        self._credit += 1
        cells = partition.cells
        cells.produces.value += 1
        if not duplicate:
            cells.bytes_in.value += records
            cells.messages_in.value += header.record_count
        return [
            pack(answer, correlation_id, head, first_offset, append_time, log_start_offset, tail)
        ]

    def learn(
        self,
        frame: memoryview,
        request: ProduceRequest,
        context: RequestContext,
        response: ProduceResponse,
    ) -> None:
        """Remember the partition of a request for one, if its batch has been appended."""
        self._credit += 1
        if (
            self._version < SINCE
            or len(request.topic_data) != 1
            or len(request.topic_data[0].partition_data) != 1
        ):
            return
        ((topic,), (answered,)) = request.topic_data, response.responses
        (data,), (answer,) = topic.partition_data, answered.partition_responses
        records = data.records
        if answer.error_code or not isinstance(records, memoryview):
            return
        count = len(records)
        length = COMPACT_LENGTH(count + 1) if self._flexible else LENGTH.pack(count)
        prefix_end = len(frame) - self._tail - len(records) - len(length)
        if prefix_end > CONTENT_AT + LARGEST_PREFIX:
            return
        prefix = bytes(frame[CONTENT_AT:prefix_end])
        self._prefix = len(prefix)
        known = self._known.get(prefix)
        opener = None
        if request.transactional_id is not None and begins_transactional(records):
            adds = self._version >= ADDS_SINCE
            opener = Opener(request.transactional_id, adds, context.owner)
        if known is not None and self._still(known, opener, context):
            return
        if known is None and len(self._known) >= MOST:
            # A connection that always writes to other partitions would remember each in vain.
            if self._credit < MOST * COST:
                return
            self._known.clear()
            self._credit = 0
        name = topic.name or self._cache.topic_name(topic.topic_id)
        partition = None if name is None else self._replicas.find((name, data.index))
        if name is None or partition is None or not partition.standing.is_prompt:
            return
        if not self._is_canonical(frame, request):
            return
        asker = context.asker
        head, tail = self._around_offsets(answered, answer)
        self._known[prefix] = _Known(
            (name, data.index),
            partition.standing,
            opener,
            asker,
            None if asker is None else asker.standing(),
            _packer(len(head), len(tail)),
            LENGTH.size + len(head) + _OFFSETS.size + len(tail),
            head,
            tail,
        )

    def _still(self, known: _Known, opener: Opener | None, context: RequestContext) -> bool:
        """Return whether what is remembered holds, so that the request had another reason."""
        asker = context.asker
        partition = self._replicas.find(known.place)
        return (
            partition is not None
            and known.standing is partition.standing
            and (opener is None or opener == known.opener)
            and known.rights is (None if asker is None else asker.standing())
        )

    def _is_canonical(self, frame: memoryview, request: ProduceRequest) -> bool:
        """Return whether the request has no bytes that its meaning does not need.

        Only then the records are certainly where they are expected.
        """
        _, body = decode_request_header(frame)
        return len(frame) - body == len(encode(request, self._version))

    def _around_offsets(
        self, topic: TopicProduceResponse, answer: PartitionProduceResponse
    ) -> tuple[bytes, bytes]:
        """Return the bytes of an answer before and behind its offsets."""
        marked, _, start = _MARKED
        answered = PartitionProduceResponse(
            index=answer.index, base_offset=marked, log_start_offset=start
        )
        topic = TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=[answered]
        )
        body = encode(ProduceResponse(responses=[topic]), self._version)
        head, _, tail = body.partition(_MARKS)
        header = encode_response_header(API.key, self._version, 0)[LENGTH.size :]
        return header + head, tail
