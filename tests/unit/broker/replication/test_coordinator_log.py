"""`LedPartition`: the access of a coordinator to a partition's log during one leader epoch."""

from pathlib import Path
from typing import cast

import pytest

from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.replication.coordinator_log import LedPartition
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.record import Record, build_batch
from tests.support.data_path import connected, running

NOW_MS = 1_700_000_000_000


def batch(*values: bytes) -> bytearray:
    records = [Record(at, NOW_MS, b"key", value) for at, value in enumerate(values)]
    return bytearray(build_batch(records))


async def test_led_partition_reads_its_appends_and_reports_their_commit(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as client:
        await client.create("t", cleanup_policy="compact")
        partition = cast(Partition, broker._replication.replicas.partition("t", 0))
        lent = LedPartition(partition, InlineOffload())
        heard: list[object] = []
        end = lent.append(batch(b"a", b"b"), NOW_MS)
        lent.when_committed(end, heard.append)
        lent.when_committed(end + 1, heard.append)
        assert (end, lent.start_offset, lent.end_offset) == (2, 0, 2)
        assert heard == [None]
        lent.append(batch(b"c"), NOW_MS)
        assert heard == [None, None]
        data = await lent.read(0, 1 << 20)
        assert [header.next_offset for _, header in iter_headers(data)] == [2, 3]
        assert await lent.read(3, 1 << 20) == b""


async def test_append_in_another_leader_epoch_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as client:
        await client.create("t")
        partition = cast(Partition, broker._replication.replicas.partition("t", 0))
        lent = LedPartition(partition, InlineOffload())
        partition.leader_epoch += 1
        with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
            lent.append(batch(b"a"), NOW_MS)
        assert lent.end_offset == 0
        LedPartition(partition, InlineOffload()).append(batch(b"v"), NOW_MS)
        with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
            lent.append(batch(b"w"), NOW_MS)
        assert lent.end_offset == 1


async def test_single_record_needs_enough_replicas_in_sync(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as client:
        await client.create("t", cleanup_policy="compact")
        partition = cast(Partition, broker._replication.replicas.partition("t", 0))
        lent = LedPartition(partition, InlineOffload())
        lent.append(batch(b"v"), NOW_MS)
        partition._min_isr = 2
        partition._stand()
        with pytest.raises(KafkaError, match="NOT_ENOUGH_REPLICAS"):
            lent.append(batch(b"v"), NOW_MS)
        assert lent.end_offset == 1
