"""Bombs, planted batches, unread answers and half-sent requests against a broker's process.

Its memory, its event loop and another client bear all of it.
"""

import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Final

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import list_offsets, metadata
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.records.batch import HEADER_SIZE
from barnabas.protocol.records.compression import Compression
from benchmarks import raw
from benchmarks.limits import timed_broker
from benchmarks.systems import create_topics
from tests.support.brokers.loop_hold import held_since_last
from tests.support.brokers.memory import resident_mb
from tests.support.brokers.process import BrokerProcess
from tests.support.neighbour import TOPIC, Neighbour, produce_error
from tests.support.planted import (
    CODECS,
    NOW,
    XERIAL,
    batch_of,
    bomb,
    crowd,
    endless_bomb,
    nested_bomb,
    old_format,
    packed,
    xerial_block,
)
from tests.support.waiting import until

MEMORY_MB: Final = 150
LONGEST_MS: Final = 50
"""CPU time of the loop's thread, which other processes of the machine do not change."""
MESSAGE_BYTES: Final = 4 << 20
AT_ONCE: Final = 3
"""Each attack comes over so many connections at the same time."""
CROWD: Final = 100
PIPELINED: Final = 20
RECORDS: Final = 100_000


class Attacked:
    """A broker in a process of its own, and a client beside the attack."""

    def __init__(self, broker: BrokerProcess, neighbour: Neighbour) -> None:
        self.broker = broker
        self.neighbour = neighbour

    def at_once(self, attacks: list[Callable[[raw.Client], ErrorCode]]) -> list[ErrorCode]:
        """Carry out attacks, each over a connection of its own; return their errors."""

        def one(attack: Callable[[raw.Client], ErrorCode]) -> ErrorCode:
            with raw.connect(self.broker.port) as client:
                return attack(client)

        with ThreadPoolExecutor(len(attacks)) as threads:
            return list(threads.map(one, attacks))

    def serves(self) -> None:
        """Require that the other client gets 20 more answers."""
        before = self.neighbour.served
        until(lambda: self.neighbour.errors or self.neighbour.served > before + 20)


@contextmanager
def attacked(
    directory: Path, message_bytes: int = MESSAGE_BYTES, **topics: dict[str, str]
) -> Iterator[Attacked]:
    """Start a broker with topics; require at the end that it bore the attack."""
    with timed_broker(directory, message_max_bytes=str(message_bytes)) as broker:
        for name, configs in ({TOPIC: {"cleanup.policy": "compact"}} | topics).items():
            create_topics(broker.bootstrap_servers, {name: 1}, configs)
        with Neighbour(broker.port) as neighbour:
            attack = Attacked(broker, neighbour)
            attack.serves()
            # The peak of the memory is counted from here on.
            Path(f"/proc/{broker.pid}/clear_refs").write_text("5")
            before = resident_mb(broker.pid)
            held_since_last(broker.pid, broker.directory)
            yield attack
            attack.serves()
            held = held_since_last(broker.pid, broker.directory)
            grown = resident_mb(broker.pid, "VmHWM") - before
        assert neighbour.errors == []
        assert held.longest_work <= LONGEST_MS
        assert grown <= MEMORY_MB


def appends(topic: str, batch: bytes) -> Callable[[raw.Client], ErrorCode]:
    return lambda client: produce_error(client, topic, batch)


def searches(topic: str) -> Callable[[raw.Client], ErrorCode]:
    """Return a search by a time that no record of the topic has."""
    asked = ListOffsetsPartition(partition_index=0, timestamp=NOW + 1)
    topics = [ListOffsetsTopic(name=topic, partitions=[asked])]
    request = ListOffsetsRequest(replica_id=-1, topics=topics)

    def search(client: raw.Client) -> ErrorCode:
        answer = client.call(list_offsets.API, 7, request)
        return ErrorCode.of(answer.topics[0].partitions[0].error_code)

    return search


PATHS: Final = {
    "validated": {"message.records.validation.enable": "true"},
    "compacted": {"cleanup.policy": "compact"},
    "recompressed": {"compression.type": "lz4", "compression.lz4.level": "12"},
}
"""The topics whose records the broker reads at the append."""


@pytest.mark.parametrize("path", PATHS)
def test_bombs_are_inflated_in_bounded_memory(path: str, tmp_path: Path) -> None:
    """A block of Snappy of 4 MB took 172 MB: it was copied."""
    with attacked(tmp_path, **{path: PATHS[path]}) as attack:
        errors = attack.at_once(
            [
                appends(path, endless_bomb(codec, MESSAGE_BYTES))
                for codec in CODECS
                for _ in range(AT_ONCE)
            ]
        )
    # Snappy cannot inflate to more than the bound, and a batch in the topic's codec is not read.
    taken = {Compression.SNAPPY, *([Compression.LZ4] if path == "recompressed" else [])}
    refused = {codec: ErrorCode.INVALID_RECORD for codec in CODECS if codec not in taken}
    assert errors == [
        refused.get(codec, ErrorCode.NONE) for codec in CODECS for _ in range(AT_ONCE)
    ]


def test_block_of_snappy_is_bounded_whatever_a_message_may_have(tmp_path: Path) -> None:
    """A block of 12 MB took 280 MB. Producers limit what they put into a batch before they compress
    it, so none sends blocks of this size."""
    size = 12 << 20
    with attacked(tmp_path, size, validated=PATHS["validated"]) as attack:
        largest = bomb(Compression.SNAPPY, 87 << 20)
        block = largest[HEADER_SIZE:]
        filled = XERIAL + struct.pack(">i", len(block)) + block
        filled += xerial_block(Random(1).randbytes(size - len(filled) - 1000))
        batches = [
            endless_bomb(Compression.SNAPPY, size),
            largest,
            batch_of(filled, 1, Compression.SNAPPY, max_timestamp=NOW + 9),
        ]
        errors = [attack.at_once([appends("validated", each)])[0] for each in batches]
    assert errors == [ErrorCode.INVALID_RECORD, ErrorCode.NONE, ErrorCode.INVALID_RECORD]


def test_nested_bombs_are_inflated_once(tmp_path: Path) -> None:
    """In a record, as a batch that is compressed twice, and as messages of the older format."""
    with attacked(tmp_path, validated=PATHS["validated"]) as attack:
        in_a_record = [nested_bomb(codec, MESSAGE_BYTES) for codec in CODECS]
        twice = [
            batch_of(packed(codec, endless_bomb(codec, MESSAGE_BYTES)[HEADER_SIZE:]), 1, codec)
            for codec in CODECS
        ]
        in_old_format = [
            old_format(outer, old_format(inner, endless_bomb(inner, MESSAGE_BYTES)[HEADER_SIZE:]))
            for inner in CODECS[:3]
            for outer in CODECS[:3]
        ]
        attacks = [appends("validated", each) for each in (*in_a_record, *twice, *in_old_format)]
        errors = attack.at_once(attacks)
    assert not any(errors[: len(CODECS)])
    assert errors[len(CODECS) :] == [ErrorCode.INVALID_RECORD] * (len(twice) + len(in_old_format))


def test_searches_by_time_over_planted_batches_take_bounded_memory(tmp_path: Path) -> None:
    """The broker reads their records only now, each time from the beginning."""
    planted = {f"bomb-{codec.name}": endless_bomb(codec, MESSAGE_BYTES) for codec in CODECS}
    planted |= {f"crowd-{codec.name}": crowd(codec, RECORDS) for codec in CODECS}
    topics: dict[str, dict[str, str]] = {name: {} for name in planted}
    with attacked(tmp_path, **topics) as attack:
        assert not any(attack.at_once([appends(*each) for each in planted.items()]))
        again = [topic for topic in topics if topic.startswith("bomb")] * (AT_ONCE - 1)
        errors = attack.at_once([searches(topic) for topic in (*topics, *again)])
    # Snappy cannot inflate to more than the bound.
    found = {topic: ErrorCode.NONE for topic in topics if "bomb" not in topic or "SNAPPY" in topic}
    assert errors == [found.get(topic, ErrorCode.CORRUPT_MESSAGE) for topic in (*topics, *again)]


@pytest.mark.parametrize("unread", ["metadata", "records"])
def test_answers_that_100_clients_do_not_read_take_bounded_memory(
    unread: str, tmp_path: Path
) -> None:
    with attacked(tmp_path, large={}) as attack:
        with raw.connect(attack.broker.port) as client:
            client.stream([raw.produce_request("large", records=50, record_bytes=20_000)] * 50, 5)
        names = [f"{number:0200}" for number in range(1000)]
        asked = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        if unread == "metadata":
            request = raw.frame(metadata.API, 12, asked)
        else:
            request = raw.fetch_request("large", offset=0, max_bytes=50 << 20)
        with crowded(attack.broker.port, request * PIPELINED):
            attack.serves()
            with raw.connect(attack.broker.port) as newcomer:
                newcomer.exchange(request)


def test_100_half_sent_requests_take_bounded_memory_and_refuse_no_other(tmp_path: Path) -> None:
    with attacked(tmp_path, large={}) as attack:
        large = raw.produce_request("large", records=50, record_bytes=60_000)
        with crowded(attack.broker.port, struct.pack(">i", 100 << 20) + bytes(3 << 20)):
            attack.serves()
            with raw.connect(attack.broker.port) as newcomer:
                raw.accepted(newcomer, large)


@contextmanager
def crowded(port: int, data: bytes) -> Iterator[None]:
    """Open a crowd of connections that send as much of `data` as the broker takes, and read
    nothing."""
    with ExitStack() as exits:
        for _ in range(CROWD):
            link = exits.enter_context(socket.create_connection(("127.0.0.1", port)))
            link.setblocking(False)
            left = memoryview(data)
            # The broker stops reading, or closes the connection.
            with suppress(OSError):
                while left:
                    left = left[link.send(left) :]
        yield
