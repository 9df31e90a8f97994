"""A fake leader for tests of followers: real logs, encoded messages and fetch sessions."""

import asyncio
from collections.abc import Callable
from typing import Any

from barnabas.broker.cluster.peers import PeerUnreachable
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import fetch
from barnabas.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.schema import Api
from barnabas.storage.log.log import Log
from tests.unit.storage.log_bench import put

Key = tuple[bytes, int]


def refused(wanted: FetchPartition, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )


def answer(log: Log, wanted: FetchPartition, max_bytes: int = 1 << 20) -> PartitionData:
    """Return the answer of a log's leader to a follower (KIP-595)."""
    if wanted.fetch_offset < log.log_start_offset:
        return refused(wanted, ErrorCode.OFFSET_OUT_OF_RANGE)
    told = PartitionData(
        partition_index=wanted.partition,
        high_watermark=log.high_watermark,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        records=b"",
    )
    if wanted.last_fetched_epoch >= 0:
        epoch, end = log.offset_for_epoch(wanted.last_fetched_epoch)
        if end < 0:
            return refused(wanted, ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < wanted.last_fetched_epoch or end < wanted.fetch_offset:
            told.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
            return told
    if wanted.fetch_offset > log.log_end_offset:
        return refused(wanted, ErrorCode.OFFSET_OUT_OF_RANGE)
    told.records = log.read(wanted.fetch_offset, max_bytes, limit=log.log_end_offset).read_bytes()
    return told


class Leader:
    """The logs of one broker and the requests that it has received; `request` is its connection."""

    def __init__(self) -> None:
        self.logs: dict[Key, Log] = {}
        self.epochs: dict[Key, int] = {}
        self.requests: list[FetchRequest] = []
        self.errors: dict[Key, ErrorCode] = {}
        self.spoil: Callable[[PartitionData], None] | None = None
        """Called with each answer, which it may change."""
        self.reachable = True
        self.connections = 0
        self.tries = 0
        self.in_flight = 0
        self.session_id = 0
        self.session_epoch = 0
        self.held: asyncio.Event | None = None
        """Finished answers wait until this event is set."""
        self._sessions = 0
        self._wanted: dict[Key, FetchPartition] = {}
        self._told: dict[Key, tuple[int, int]] = {}
        self._news = asyncio.Event()

    def add(self, log: Log, epoch: int = 0) -> None:
        self.logs[log.topic_id, log.partition] = log
        self.epochs[log.topic_id, log.partition] = epoch

    def changed(self) -> None:
        """Wake the delayed fetches after an append or a commit."""
        self._news.set()

    def drop_session(self) -> None:
        self.session_id = -1

    def connect(self, _: int) -> "Leader":
        self.connections += 1
        return self

    async def close(self) -> None:
        self.connections -= 1

    async def request(
        self, api: Api, request: object, *, version: int | None = None, timeout: float = 30.0
    ) -> Any:
        del timeout
        await asyncio.sleep(0)
        self.tries += 1
        if not self.reachable:
            raise PeerUnreachable("out of reach")
        if api is fetch.API:
            version = 17 if version is None else version
            asked = decode(FetchRequest, version, encode(request, version))
            self.in_flight += 1
            try:
                response = await self._fetch(asked)
                if self.held is not None:
                    await self.held.wait()
            finally:
                self.in_flight -= 1
            return decode(FetchResponse, version, encode(response, version))
        version = 9 if version is None else version
        bounds = decode(ListOffsetsRequest, version, encode(request, version))
        return decode(ListOffsetsResponse, version, encode(self._bounds(bounds), version))

    async def _fetch(self, request: FetchRequest) -> FetchResponse:
        self.requests.append(request)
        if request.session_epoch == 0:
            self._sessions += 1
            self.session_id, self.session_epoch = self._sessions, 1
            self._wanted, self._told = {}, {}
        elif request.session_id != self.session_id:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
        elif request.session_epoch != self.session_epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, responses=[])
        else:
            self.session_epoch += 1
        for topic in request.topics:
            for wanted in topic.partitions:
                self._wanted[topic.topic_id, wanted.partition] = wanted
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                del self._wanted[forgotten.topic_id, index]
        self._news.clear()
        answers = self._look()
        if not answers:
            try:
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await self._news.wait()
            except TimeoutError:
                pass
            if not self.reachable:
                raise PeerUnreachable("the connection was lost")
            answers = self._look()
        topics: dict[bytes, FetchableTopicResponse] = {}
        for (topic_id, _), each in answers.items():
            topics.setdefault(
                topic_id, FetchableTopicResponse(topic_id=topic_id, partitions=[])
            ).partitions.append(each)
        return FetchResponse(session_id=self.session_id, responses=list(topics.values()))

    def _look(self) -> dict[Key, PartitionData]:
        news = {}
        for key, wanted in self._wanted.items():
            told = self._one(key, wanted)
            state = told.high_watermark, told.log_start_offset
            if (
                told.records
                or told.error_code
                or told.diverging_epoch.epoch >= 0
                or (self._told.get(key) != state)
            ):
                self._told[key] = state
                if self.spoil is not None:
                    self.spoil(told)
                news[key] = told
        return news

    def _one(self, key: Key, wanted: FetchPartition) -> PartitionData:
        error = self.errors.get(key)
        if error is None and key not in self.logs:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        if error is None and wanted.current_leader_epoch != self.epochs[key]:
            behind = wanted.current_leader_epoch < self.epochs[key]
            error = ErrorCode.FENCED_LEADER_EPOCH if behind else ErrorCode.UNKNOWN_LEADER_EPOCH
        return answer(self.logs[key], wanted) if error is None else refused(wanted, error)

    def _bounds(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        by_name = {(log.topic, log.partition): log for log in self.logs.values()}
        topics = []
        for topic in request.topics:
            found = []
            for each in topic.partitions:
                log = by_name[topic.name, each.partition_index]
                latest = each.timestamp == -1
                offset = log.log_end_offset if latest else log.log_start_offset
                found.append(
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, offset=offset
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=found))
        return ListOffsetsResponse(topics=topics)


def content(log: Log) -> bytes:
    end = log.log_end_offset
    return log.read(log.log_start_offset, 1 << 30, limit=end).read_bytes()


def write(log: Log, *values: bytes, epoch: int) -> None:
    """Append without committing."""
    for value in values:
        watermark = log.high_watermark
        put(log, value, epoch=epoch)
        log.high_watermark = watermark


def lead(log: Log, epoch: int) -> None:
    log.assign_leader_epoch(epoch)
