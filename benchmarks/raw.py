"""A client that costs nearly nothing: a plain blocking socket and prepared request bytes.

It measures the broker: requests are encoded before the clock starts, and of a response it reads
only the size, and the error code if an error would go unnoticed.
"""

import socket
import time
from collections import deque
from collections.abc import Iterable
from itertools import repeat
from struct import Struct
from types import TracebackType
from typing import Any, Self

from barnabas.protocol.codec import decode, encode
from barnabas.protocol.header import decode_response_header, encode_request_header
from barnabas.protocol.messages import delete_topics, fetch, metadata, produce
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records.record import Record, build_batch
from barnabas.protocol.schema import Api

_SIZE = Struct(">i")
_METADATA, _PRODUCE, FETCH, _DELETE = 9, 9, 12, 5
"""The versions that name topics by name, so that a request can be built once."""
_READY_WITHIN_S = 60.0
_RETRY_S = 0.002


class Client:
    """One connection. Responses arrive in the order of the requests."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port = port
        self._answers = self._socket.makefile("rb", 1024 * 1024)
        self.last_answer = b""
        """The last response of a stream."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._answers.close()
        self._socket.close()

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._socket.fileno()

    def send(self, request: bytes | bytearray) -> None:
        """Send one request; `receive` returns its response."""
        self._socket.sendall(request)

    def receive(self) -> bytes:
        """Return the response of the oldest request that has none yet."""
        return self._answer()

    def exchange(self, request: bytes | bytearray) -> bytes:
        """Send one request and return its response."""
        self._socket.sendall(request)
        return self._answer()

    def call(self, api: Api, version: int, request: Any) -> Any:
        """Send and decode a message that is not worth preparing."""
        answer = self.exchange(frame(api, version, request))
        _, body = decode_response_header(api.key, version, answer)
        return decode(api.response, version, answer, body)

    def stream(self, requests: Iterable[bytes | bytearray], window: int) -> list[float]:
        """Send request after request, with up to `window` of them in flight.

        Return the seconds from each request to its response, ascending.
        """
        clock, flying = time.perf_counter, deque[float]()
        taken = []
        for request in requests:
            if len(flying) == window:
                self.last_answer = self._answer()
                taken.append(clock() - flying.popleft())
            flying.append(clock())
            self._socket.sendall(request)
        for began in flying:
            self.last_answer = self._answer()
            taken.append(clock() - began)
        return sorted(taken)

    def latencies(self, request: bytes, count: int) -> list[float]:
        """Return the seconds of `count` requests that are sent one at a time, ascending."""
        return self.stream(repeat(request, count), window=1)

    def _answer(self) -> bytes:
        size: int = _SIZE.unpack(self._read(_SIZE.size))[0]
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data: bytes = self._answers.read(size)
        if len(data) < size:
            raise ConnectionError("the broker closed the connection")
        return data


def frame(api: Api, version: int, request: Any) -> bytes:
    """Return a complete request as bytes."""
    header = encode_request_header(api.key, version, 1, "benchmark")
    body = encode(request, version)
    return _SIZE.pack(len(header) + len(body)) + header + body


def produce_request(topic: str, *, records: int, record_bytes: int) -> bytes:
    """Return a Produce with one batch for partition 0, acks=all."""
    now_ms = time.time_ns() // 1_000_000
    value = bytes(record_bytes)
    return _produce(topic, [Record(at, now_ms, None, value, ()) for at in range(records)])


def keyed_request(topic: str, keys: Iterable[int], value: bytes, *, partition: int) -> bytes:
    """Return a Produce with one batch that has a record for each key."""
    now_ms = time.time_ns() // 1_000_000
    records = [Record(at, now_ms, b"%d" % key, value, ()) for at, key in enumerate(keys)]
    return _produce(topic, records, partition)


def _produce(topic: str, records: list[Record], partition: int = 0) -> bytes:
    batch = build_batch(records)
    data = PartitionProduceData(index=partition, records=batch)
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
    return frame(produce.API, _PRODUCE, request)


def fetch_request(
    topic: str, *, offset: int, max_bytes: int, session: int = 0, epoch: int = -1
) -> bytes:
    """Return a Fetch from partition 0 that does not wait; epoch -1 is one without a session."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=64 * 1024 * 1024,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
    )
    return frame(fetch.API, FETCH, request)


def acknowledged(client: Client, request: bytes) -> None:
    """Send a `produce_request` until it is acknowledged: a leader may not know of its election
    yet."""
    end = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < end:
        answer = client.exchange(request)
        _, body = decode_response_header(produce.API.key, _PRODUCE, answer)
        response = decode(produce.API.response, _PRODUCE, answer, body)
        if not response.responses[0].partition_responses[0].error_code:
            return
        time.sleep(_RETRY_S)
    raise TimeoutError("a record was not acknowledged")


def connect(port: int) -> Client:
    """Connect to a broker that is about to start. Raises TimeoutError if it does not."""
    end = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < end:
        try:
            return Client(port)
        except ConnectionRefusedError:
            time.sleep(_RETRY_S)
    raise TimeoutError(f"no server listens on port {port}")


def create_topic(client: Client, topic: str) -> None:
    """Create a topic of one partition; return when it has a leader."""
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True
    )
    end = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < end:
        found = client.call(metadata.API, _METADATA, asked).topics[0]
        if not found.error_code and found.partitions and not found.partitions[0].error_code:
            return
        time.sleep(_RETRY_S)
    raise TimeoutError(f"{topic} has no leader")


def leader_port(client: Client, topic: str) -> int:
    """Return the port of the broker that leads partition 0."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    found = client.call(metadata.API, _METADATA, request)
    leader = found.topics[0].partitions[0].leader_id
    return next(int(node.port) for node in found.brokers if node.node_id == leader)


def delete_topic(client: Client, topic: str) -> None:
    """Free the disk for the next measurement."""
    client.call(
        delete_topics.API, _DELETE, DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000)
    )
