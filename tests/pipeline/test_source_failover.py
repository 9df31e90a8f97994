"""The source reads on when leaders crash, and takes no lagging leader for lost data."""

import itertools
from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from barnabas.pipeline.spark.source import StreamReader, columns
from barnabas.testing import Cluster
from tests.support.topics import Topics

RECORDS = 2_000


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(processes=True) as cluster:
        yield cluster


def test_a_range_is_read_whole_while_its_leader_is_killed(cluster: Cluster) -> None:
    topics = Topics(cluster.bootstrap_servers)
    topics.create("t", 1, replicas=3)
    values = [b"%d" % number + bytes(500) for number in range(RECORDS)]
    for first in range(0, RECORDS, 20):
        # librdkafka makes one batch of each call.
        topics.write("t", values[first : first + 20])
    given = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "subscribe": "t",
        "startingOffsets": "earliest",
        # Small responses: the range needs many requests.
        "kafka.max.partition.fetch.bytes": "20000",
    }
    reader = StreamReader(given, columns(headers=False))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {"t": {"0": RECORDS}}
    (task,) = reader.partitions(start, end)
    batches = reader.read(task)
    found = next(batches).column("value").to_pylist()
    assert len(found) < RECORDS / 2
    cluster.kill(cluster.leader_of("t"))
    found += itertools.chain.from_iterable(rows.column("value").to_pylist() for rows in batches)
    assert found == values
    # The next trigger asks the new leader, whose high watermark may lag behind.
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    topics.write("t", [b"later"])
    assert reader.latestOffset(end, ReadAllAvailable()) == {"t": {"0": RECORDS + 1}}
