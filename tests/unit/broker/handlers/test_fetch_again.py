"""A Fetch that is served again is answered as the handler does, or left to it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from barnabas.broker.handlers.fetch import _is_for_one, _read_again, again, handle
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.repeats import Repeats
from barnabas.protocol.codec import encode_parts
from barnabas.protocol.header import encode_request_header, encode_response_header
from barnabas.protocol.messages.fetch import (
    API,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.records.record import Record, build_batch
from barnabas.security.acl.rules import AclOperation, ResourceType
from barnabas.security.principal import ANONYMOUS, Principal
from barnabas.storage.log.log_slice import LogSlice
from barnabas.storage.log.validator import Origin
from barnabas.storage.producers.verification import UNVERIFIED
from tests.support.mutants import finds, hunt
from tests.support.steps import taken
from tests.unit.broker.handlers.leading import collaborators
from tests.unit.broker.replication.replicas import TOPIC_ID, Replicas

BATCHES = 12


class Asking:
    """An authorizer that allows everything, until its rules change."""

    rules: object = object()

    def allows(
        self,
        _context: RequestContext,
        _operation: AclOperation,
        _type: ResourceType,
        _name: str,
        *,
        log_denied: bool = True,  # noqa: ARG002
    ) -> bool:
        return True

    def is_super_user(self, _principal: Principal) -> bool:
        return False

    def standing(self) -> object:
        return self.rules


class Consumer:
    """A consumer whose requests go to the fast path first."""

    def __init__(self, replicas: Replicas, version: int) -> None:
        self.replicas = replicas
        self.partition = replicas.manager.partition("t", 0)
        self.version = version
        self.max_bytes = 1 << 20
        self.asker: Asking | None = None
        self.parts = collaborators(replicas, max_bytes=lambda: self.max_bytes)
        self.sessions: Any = self.parts[0]
        self.path = Repeats(API, version, partial(again, *self.parts))
        self._numbers = iter(range(1, 1000))

    def request(self, offset: int, *, topic: str = "t", size: int = 1 << 20, **f: Any) -> Any:
        wanted = FetchPartition(
            partition=0,
            fetch_offset=offset,
            partition_max_bytes=size,
            current_leader_epoch=f.pop("leader_epoch", -1),
            last_fetched_epoch=f.pop("last_epoch", -1),
        )
        named = {"topic": topic} if self.version < 13 else {"topic_id": TOPIC_ID}
        topics = [FetchTopic(**named, partitions=[wanted])]
        return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "topics": topics} | f)

    def frame(self, request: Any, number: int) -> memoryview:
        header = encode_request_header(API.key, self.version, number, "c")
        body = b"".join(encode_parts(request, self.version))  # type: ignore[arg-type]
        return memoryview(header + body)

    def fast(self, request: Any) -> bytes | None:
        """Return the answer of the fast path, None if it has none."""
        parts = self.path.serve(self.frame(request, next(self._numbers)), 0)
        return None if parts is None else _bytes(parts)

    def slow(self, request: Any, *, learns: bool = True) -> bytes:
        """Return the answer of the handler, with the number of the last request."""
        number = next(self._numbers)
        context = RequestContext(
            API.key, self.version, number, "c", ANONYMOUS, "PLAINTEXT", "h", 1, 0, asker=self.asker
        )
        frame = self.frame(request, number)
        response, _ = taken(handle(*self.parts, request, context))
        if learns:
            self.path.learn(frame, request, context, response)
        body = encode_parts(response, self.version)
        head = encode_response_header(API.key, self.version, number)
        size = len(head) + sum(map(len, body))
        return _bytes([size.to_bytes(4) + head, *body])

    def same(self, request: Any) -> None:
        """Check that the fast path serves a request as the handler does."""
        fast = self.fast(request)
        assert fast is not None
        slow = self.slow(request, learns=False)
        # The correlation ids are one apart.
        assert (fast[:4], fast[8:]) == (slow[:4], slow[8:])


def _bytes(parts: Any) -> bytes:
    return b"".join(part.read_bytes() if isinstance(part, LogSlice) else part for part in parts)


async def consumer(version: int = 12) -> Consumer:
    replicas = Replicas()
    await replicas.lead()
    _tell(replicas, TOPIC_ID)
    made = Consumer(replicas, version)
    for number in range(BATCHES):
        batch = build_batch([Record(0, 1, b"k", bytes(100 * number), ())])
        made.partition.append(bytearray(batch), now_ms=1, guard=UNVERIFIED)
    return made


def _tell(replicas: Replicas, topic_id: bytes) -> None:
    """Send this broker the metadata of the topic."""
    partition = UpdateMetadataPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=0,
        leader_epoch=0,
        isr=[0],
        zk_version=0,
        replicas=[0],
    )
    topic = UpdateMetadataTopicState(
        topic_name="t", topic_id=topic_id, partition_states=[partition]
    )
    request = UpdateMetadataRequest(
        controller_id=0,
        controller_epoch=1,
        type=2,
        topic_states=[topic],
        live_brokers=[],
    )
    for _ in replicas.cache.apply(request):
        pass


@pytest.mark.parametrize("version", range(7, 19))
async def test_next_requests_are_answered_as_by_the_handler(version: int) -> None:
    reader = await consumer(version)
    reader.slow(reader.request(0))
    for offset in range(1, BATCHES):
        reader.same(reader.request(offset))


@finds(again, "version < REPEATS_SINCE or ")
async def test_older_versions_are_left_to_the_handler() -> None:
    reader = await consumer(6)
    reader.slow(reader.request(0))
    assert reader.fast(reader.request(1)) is None


@pytest.mark.parametrize(
    "other",
    [
        {"topic": "tt"},
        {"topic": "u"},
        {"size": 10},
        {"max_bytes": 10},
        {"isolation_level": 1},
        {"rack_id": "r"},
        {"leader_epoch": 0},
        {"last_epoch": 0},
        {"session_epoch": 0},
        {"session_id": 7, "session_epoch": 3},
        {"forgotten_topics_data": [ForgottenTopic(topic="t", partitions=[1])]},
    ],
)
async def test_request_that_says_something_else_is_left_to_the_handler(
    other: dict[str, Any],
) -> None:
    reader = await consumer()
    reader.slow(reader.request(0))
    assert reader.fast(reader.request(1, **other)) is None
    reader.same(reader.request(1))


@finds(again, "session is None or ", "", {"session_id": 7})
@finds(_is_for_one, "or request.rack_id", "", {"rack_id": "r"})
@finds(
    _is_for_one,
    "or request.forgotten_topics_data",
    "",
    {"forgotten_topics_data": [ForgottenTopic(topic="t", partitions=[1])]},
)
@pytest.mark.parametrize(
    "request_fields",
    [
        {"rack_id": "r"},
        {"forgotten_topics_data": [ForgottenTopic(topic="t", partitions=[1])]},
        {"session_epoch": 0},
        {"session_id": 7},
    ],
)
async def test_request_of_another_kind_is_not_remembered(request_fields: dict[str, Any]) -> None:
    reader = await consumer()
    reader.slow(reader.request(0, **request_fields))
    assert reader.fast(reader.request(1, **request_fields)) is None


@finds(_is_for_one, "not answer.records or ")
async def test_error_is_not_remembered() -> None:
    reader = await consumer()
    reader.slow(reader.request(BATCHES + 1))
    assert reader.fast(reader.request(1)) is None


async def test_request_with_other_leader_epoch_is_not_remembered() -> None:
    reader = await consumer()
    reader.slow(reader.request(0, leader_epoch=1))
    assert reader.fast(reader.request(1, leader_epoch=1)) is None


async def _new_epoch(reader: Consumer) -> None:
    assert await reader.replicas.lead(epoch=1) == 0


async def _new_follower(reader: Consumer) -> None:
    assert await reader.replicas.lead(replicas=(0, 1), isr=(0, 1)) == 0


async def _resigned(reader: Consumer) -> None:
    reader.partition.resign()


async def _removed(reader: Consumer) -> None:
    # A replica that is being stopped leads until its fetcher has ended.
    reader.replicas.manager._remove(("t", 0))


async def _other_replica(reader: Consumer) -> None:
    await _removed(reader)
    await reader.replicas.lead()


async def _truncating(reader: Consumer) -> None:
    reader.partition.log.truncating = True


async def _deleted_records(reader: Consumer) -> None:
    reader.partition.log.delete_records_before(3)


@finds(_read_again, "partition is None or ", "", _removed, 12)
@finds(_read_again, " or standing is not partition.standing", "", _resigned, 12)
@finds(_read_again, " or standing is not partition.standing", "", _new_epoch, 12)
@finds(_read_again, " or standing is not partition.standing", "", _other_replica, 13)
@pytest.mark.parametrize(
    ("change", "version"),
    [
        (_new_epoch, 12),
        (_resigned, 12),
        (_removed, 12),
        (_other_replica, 12),
        (_other_replica, 13),
        (_new_follower, 12),
        (_truncating, 12),
        (_deleted_records, 12),
    ],
)
async def test_what_has_changed_is_left_to_the_handler(
    change: Callable[[Consumer], Any], version: int
) -> None:
    reader = await consumer(version)
    reader.slow(reader.request(0))
    reader.same(reader.request(1))
    await change(reader)
    assert reader.fast(reader.request(2)) is None


async def test_changed_rules_are_asked_again() -> None:
    reader = await consumer()
    reader.asker = Asking()
    reader.slow(reader.request(0))
    reader.same(reader.request(1))
    reader.asker.rules = object()
    assert reader.fast(reader.request(2)) is None


async def test_each_request_is_asked_for_while_allowed_ones_are_logged() -> None:
    reader = await consumer()
    reader.asker = Asking()
    reader.asker.rules = None
    reader.slow(reader.request(0))
    assert reader.fast(reader.request(1)) is None


@finds(_read_again, "(size < min_bytes and size < limit)", "False")
async def test_too_few_bytes_wait_in_the_handler() -> None:
    reader = await consumer()
    size = len(build_batch([Record(0, 1, b"k", bytes(100 * (BATCHES - 1)), ())]))
    asked = {"min_bytes": size, "max_wait_ms": 20_000}
    reader.slow(reader.request(0, **asked))
    reader.same(reader.request(BATCHES - 1, **asked))
    more = {"min_bytes": size + 1, "max_wait_ms": 20_000}
    reader.slow(reader.request(0, **more))
    assert reader.fast(reader.request(BATCHES - 1, **more)) is None
    # Nor is a request for all there is, at the limit of the answer.
    assert reader.fast(reader.request(BATCHES, **more)) is None


@finds(_read_again, "min(max_bytes, most_bytes())", "max_bytes")
async def test_limit_of_the_broker_holds_when_it_changes() -> None:
    reader = await consumer()
    reader.slow(reader.request(0))
    reader.max_bytes = 300
    reader.same(reader.request(1))


@finds(again, "if answer.aborted_transactions:", "if False:")
@finds(
    _read_again, "end = last_stable if read_committed else high_watermark", "end = high_watermark"
)
@finds(_read_again, "read_committed and log.aborted_transactions(offset, end_offset)", "False")
async def test_records_of_an_open_transaction_are_not_read_committed() -> None:
    reader = await consumer()
    batch = build_batch(
        [Record(0, 1, b"k", b"v", ())],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    reader.partition.append(bytearray(batch), now_ms=1, guard=UNVERIFIED)
    for level in (0, 1):
        reader.slow(reader.request(0, isolation_level=level))
        reader.same(reader.request(1, isolation_level=level))
    assert reader.fast(reader.request(BATCHES, isolation_level=1)) is None
    marker = TxnMarker(1, 0, 0, False).batch(1)
    reader.partition.append(marker, now_ms=1, origin=Origin.COORDINATOR)
    # The answer names the aborted transaction.
    assert reader.fast(reader.request(BATCHES, isolation_level=1)) is None
    another = Consumer(reader.replicas, 12)
    another.slow(another.request(BATCHES, isolation_level=1, size=300))
    another.same(another.request(1, isolation_level=1, size=300))


@finds(_read_again, "(last_epoch >= 0 and last_epoch != log.epochs.latest_epoch)", "False")
async def test_epoch_after_which_the_logs_may_differ_is_left_to_the_handler() -> None:
    reader = await consumer()
    reader.slow(reader.request(0, last_epoch=0))
    reader.same(reader.request(1, last_epoch=0))
    reader.partition.log.assign_leader_epoch(1)
    assert reader.fast(reader.request(2, last_epoch=0)) is None


@finds(again, "if request.session_id != NO_SESSION:", "if False:")
@finds(_read_again, "else not sessions.is_next(session, epoch, fetched)", "else False")
@finds(_read_again, "wanted.fetch_offset = offset", "pass")
@finds(
    _read_again,
    "fetched.high_watermark, fetched.log_start_offset = high_watermark, log_start",
    "pass",
)
@finds(_read_again, "sessions.used(session, now_ms)", "pass")
async def test_session_goes_on_with_each_request() -> None:
    reader = await consumer()
    reader.slow(reader.request(0, session_epoch=0))
    (session,) = reader.sessions
    epoch = 1
    reader.slow(reader.request(0, session_id=session.id, session_epoch=epoch))
    for offset in range(1, BATCHES):
        epoch += 1
        batch = build_batch([Record(0, 1, b"k", b"v", ())])
        reader.partition.append(bytearray(batch), now_ms=1, guard=UNVERIFIED)
        asked = reader.request(offset, session_id=session.id, session_epoch=epoch)
        assert reader.fast(asked) is not None
        (fetched,) = session.partitions.values()
        assert fetched.wanted.fetch_offset == offset
        assert fetched.high_watermark == BATCHES + offset
        assert session.epoch == epoch + 1
    old = reader.request(3, session_id=session.id, session_epoch=epoch)
    assert reader.fast(old) is None


@finds(_read_again, "fetched.update(wanted)", "pass")
async def test_session_keeps_what_the_last_request_asked_for() -> None:
    reader = await consumer()
    reader.slow(reader.request(0, session_epoch=0))
    (session,) = reader.sessions
    reader.slow(reader.request(0, session_id=session.id, session_epoch=1))
    (fetched,) = session.partitions.values()
    reader.slow(reader.request(1, size=500, session_id=session.id, session_epoch=2))
    assert fetched.wanted.partition_max_bytes == 500
    assert reader.fast(reader.request(2, session_id=session.id, session_epoch=3)) is not None
    assert fetched.wanted.partition_max_bytes == 1 << 20


@pytest.mark.parametrize("size", [*range(238, 243), *range(440, 445), 1000])
async def test_whole_batches_that_fit_are_read(size: int) -> None:
    """The batches have 69, 171, 271, 371 ... bytes."""
    reader = await consumer()
    reader.slow(reader.request(0, size=size))
    for offset in range(BATCHES):
        reader.same(reader.request(offset, size=size))


@finds(again, " or len(session.partitions) != 1")
async def test_session_with_another_partition_is_left_to_the_handler() -> None:
    reader = await consumer()
    await reader.replicas.lead(topic="u", topic_id=bytes(range(2, 18)))
    reader.slow(reader.request(0, session_epoch=0))
    (session,) = reader.sessions
    reader.slow(reader.request(0, session_id=session.id, session_epoch=1))
    assert reader.fast(reader.request(1, session_id=session.id, session_epoch=2)) is not None
    reader.slow(reader.request(0, topic="u", session_id=session.id, session_epoch=3))
    third = reader.request(2, session_id=session.id, session_epoch=4)
    assert reader.fast(third) is None
    reader.slow(third)
    assert reader.fast(reader.request(3, session_id=session.id, session_epoch=5)) is None


@pytest.mark.parametrize("other", [("t", 1), ("u", 0)])
async def test_answer_for_partitions_that_the_request_does_not_name_is_not_remembered(
    other: tuple[str, int],
) -> None:
    reader = await consumer()
    topic, index = other
    topic_id = TOPIC_ID if topic == "t" else bytes(range(2, 18))
    await reader.replicas.lead(topic=topic, index=index, topic_id=topic_id)
    further = reader.replicas.manager.partition(topic, index)
    batch = build_batch([Record(0, 1, b"k", b"v", ())])
    further.append(bytearray(batch), now_ms=1, guard=UNVERIFIED)
    wanted = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
    both = reader.request(0, session_epoch=0)
    if topic == "t":
        both.topics[0].partitions.append(wanted)
    else:
        both.topics.append(FetchTopic(topic=topic, partitions=[wanted]))
    reader.slow(both)
    (session,) = reader.sessions
    for epoch in range(1, 3):
        asked = reader.request(epoch, session_id=session.id, session_epoch=epoch)
        assert reader.fast(asked) is None
        reader.slow(asked)


@finds(_is_for_one, "len(request.topics) != 1 or ", "", "u")
@finds(_is_for_one, " or len(request.topics[0].partitions) != 1", "", "t")
@pytest.mark.parametrize("topic", ["t", "u"])
async def test_request_for_several_partitions_is_not_remembered(topic: str) -> None:
    reader = await consumer()
    index, topic_id = (1, TOPIC_ID) if topic == "t" else (0, bytes(range(2, 18)))
    await reader.replicas.lead(topic=topic, index=index, topic_id=topic_id)

    def both(**session: int) -> Any:
        wanted = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        request = reader.request(0, **session)
        if topic == "t":
            request.topics[0].partitions.append(wanted)
        else:
            request.topics.append(FetchTopic(topic=topic, partitions=[wanted]))
        return request

    reader.slow(both(session_epoch=0))
    (session,) = reader.sessions
    # The answer has one partition: there is no news of the other one.
    reader.slow(both(session_id=session.id, session_epoch=1))
    assert reader.fast(both(session_id=session.id, session_epoch=2)) is None


@finds(_read_again, "if offset >= end:", "if False:")
async def test_no_news_of_a_session_is_not_told() -> None:
    reader = await consumer()
    reader.slow(reader.request(0, session_epoch=0, min_bytes=0))
    (session,) = reader.sessions
    reader.slow(reader.request(0, session_id=session.id, session_epoch=1, min_bytes=0))
    asked = reader.request(BATCHES, session_id=session.id, session_epoch=2, min_bytes=0)
    assert reader.fast(asked) is None


@finds(again, "or topic_id not in (None, partition.topic_id)")
async def test_topic_id_of_another_replica_is_not_remembered() -> None:
    reader = await consumer(13)
    reader.partition.topic_id = bytes(range(3, 19))
    context = RequestContext(API.key, 13, 1, "c", ANONYMOUS, "PLAINTEXT", "h", 1, 0)
    partition = PartitionData(
        partition_index=0, high_watermark=1, aborted_transactions=None, records=b"r"
    )
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition])
    response = FetchResponse(responses=[topic])
    assert again(*reader.parts, reader.request(0), context, response) is None


@finds(again, "or not partition.standing.is_leader")
async def test_replica_that_does_not_lead_is_not_remembered() -> None:
    reader = await consumer()
    request = reader.request(0)
    context = RequestContext(API.key, 12, 1, "c", ANONYMOUS, "PLAINTEXT", "h", 1, 0)
    response, _ = taken(handle(*reader.parts, request, context))
    reader.partition.resign()
    assert again(*reader.parts, request, context, response) is None


@finds(_read_again, "epoch != FINAL_EPOCH if", "False if")
async def test_epoch_of_a_session_that_does_not_exist_is_left_to_the_handler() -> None:
    reader = await consumer()
    reader.slow(reader.request(0))
    assert reader.fast(reader.request(1, session_epoch=0)) is None


@finds(again, "elif request.session_epoch != FINAL_EPOCH:", "elif False:")
async def test_answer_that_begins_a_session_is_not_remembered() -> None:
    """A request outside of sessions differs from it in the epoch only."""
    reader = await consumer()
    reader.slow(reader.request(0, session_epoch=0))
    assert reader.fast(reader.request(1)) is None


async def test_frame_with_more_bytes_than_its_meaning_needs_is_not_remembered() -> None:
    reader = await consumer()
    request = reader.request(0)
    context = RequestContext(API.key, 12, 1, "c", ANONYMOUS, "PLAINTEXT", "h", 1, 0)
    response, _ = taken(handle(*reader.parts, request, context))
    frame = memoryview(bytes(reader.frame(request, 1)) + b"\0")
    reader.path.learn(frame, request, context, response)
    assert reader.path.serve(frame, 0) is None


# --- each check


test_missing_check_is_found = hunt(globals())
