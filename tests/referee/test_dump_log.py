"""Apache Kafka's DumpLogSegments reads the files that Barnabas writes."""

import re
from pathlib import Path
from random import Random

import pytest

from barnabas.protocol.messages.init_producer_id import API as INIT_PRODUCER_ID
from barnabas.protocol.records.compression import Compression
from barnabas.testing.broker import Broker
from tests.referee import given
from tests.referee.brokers import Address, warm_up
from tests.referee.jars import require
from tests.referee.scenario import Peer
from tests.referee.tools import dump_log

pytestmark = pytest.mark.xdist_group("referee-tools")

GROUP = "g"
RECORDS = 400


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of a stopped broker: a topic of several segments, and an offsets topic."""
    require()
    directory = tmp_path_factory.mktemp("data")
    configs = {"offsets.topic.num.partitions": "1", "auto.create.topics.enable": "false"}
    with Broker(configs, data_dir=directory) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        address = Address(host, int(port))
        warm_up(address)
        with Peer(*address, INIT_PRODUCER_ID, 5, "dump") as peer:
            write(peer)
    return directory


def write(peer: Peer) -> None:
    small = {"segment.bytes": "1048576", "index.interval.bytes": "1000"}
    to = given.topic(peer, configs=small)
    producer_id, epoch = given.producer_id(peer)
    for sequence in range(RECORDS):
        codec = Compression(sequence % len(Compression))
        value = Random(sequence).randbytes(10_000)
        given.records(
            peer,
            to,
            value,
            since=given.NOW + sequence,
            compression=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
    given.committed(peer, GROUP, to, 17)
    given.member(peer, "members")


def files(directory: Path, topic: str, kind: str) -> list[Path]:
    return sorted(directory.glob(f"{topic}-0/*{kind}"))


def test_segments_and_their_records(written: Path) -> None:
    segments = files(written, "dump-5-t", ".log")
    assert len(segments) > 1
    said = dump_log(*segments)
    assert len(re.findall(r"\| offset: \d+", said)) == RECORDS
    assert said.count("isvalid: true") == RECORDS
    for codec in Compression:
        assert f"compresscodec: {codec.name.lower()}" in said


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_indexes_agree_with_their_segment(written: Path, kind: str) -> None:
    for index in files(written, "dump-5-t", kind):
        assert "passed sanity check" in dump_log(index, options=("--index-sanity-check",))
        said = dump_log(index, options=("--verify-index-only",))
        assert "mismatch" not in said.lower(), said
        assert "out of order" not in said.lower(), said


def test_producer_snapshots(written: Path) -> None:
    snapshots = files(written, "dump-5-t", ".snapshot")
    assert snapshots
    said = dump_log(*snapshots)
    assert f"lastSequence: {RECORDS - 1}" in said, said


def test_the_offsets_topic(written: Path) -> None:
    segments = files(written, "__consumer_offsets", ".log")
    said = dump_log(*segments, options=("--offsets-decoder",))
    assert '"group":"g","topic":"dump-5-t","partition":0' in said, said
    assert '"offset":17' in said
    assert '"protocolType":"consumer"' in said
