"""Apache Kafka's DumpLogSegments reads the files that Barnabas writes."""

import re
import signal
from pathlib import Path
from random import Random

import pytest

from barnabas.coordinator.group.consumer.records import KINDS
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.init_producer_id import API as INIT_PRODUCER_ID
from barnabas.protocol.records.compression import Compression
from barnabas.testing.broker import Broker
from tests.referee import consumers, given
from tests.referee.brokers import Address, warm_up
from tests.referee.scenario import Peer
from tests.support.command_line import Served
from tests.support.kafka.tools import Tools

pytestmark = pytest.mark.xdist_group("referee-tools")

GROUP = "g"
RECORDS = 400
CONFIGS = {
    "offsets.topic.num.partitions": "1",
    "auto.create.topics.enable": "false",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module", params=["after a clean stop", "after kill -9 and recovery"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log directory that no broker uses: a topic of several segments, and an offsets
    topic."""
    directory = tmp_path_factory.mktemp("data")
    settings = (f"--set={key}={value}" for key, value in CONFIGS.items())
    broker = Served("--listen", "127.0.0.1:0", "--data", str(directory), *settings)
    try:
        host, _, port = broker.servers.rpartition(":")
        address = Address(host, int(port))
        warm_up(address)
        with Peer(*address, INIT_PRODUCER_ID, 5, "dump") as peer:
            write(peer)
    finally:
        broker.stop(signal.SIGTERM if request.param == "after a clean stop" else signal.SIGKILL)
    if request.param == "after kill -9 and recovery":
        # A start recovers the logs.
        Broker(CONFIGS, data_dir=directory).start().stop()
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
    peer.do(consumers.join("consumers", "a", to, instance_id="i", server_assignor="range"))
    of_expression = {"subscribed_topic_names": None, "subscribed_topic_regex": "dump.*"}
    peer.do(consumers.join("consumers", "b", **of_expression))
    peer.do(consumers.beat("consumers", "b", 2), until=lambda r: r.member_epoch == 3)
    peer.do(consumers.join("deleted", "c"))
    peer.do(consumers.beat("deleted", "c", -1))
    peer.do(DeleteGroupsRequest(groups_names=["deleted"]))


def files(directory: Path, topic: str, kind: str) -> list[Path]:
    return sorted(directory.glob(f"{topic}-0/*{kind}"))


def test_segments_and_their_records(tools: Tools, written: Path) -> None:
    segments = files(written, "dump-5-t", ".log")
    assert len(segments) > 1
    said = tools.dump_log(*segments)
    assert len(re.findall(r"\| offset: \d+", said)) == RECORDS
    assert said.count("isvalid: true") == RECORDS
    for codec in Compression:
        assert f"compresscodec: {codec.name.lower()}" in said


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_indexes_agree_with_their_segment(tools: Tools, written: Path, kind: str) -> None:
    for index in files(written, "dump-5-t", kind):
        assert "passed sanity check" in tools.dump_log(index, options=("--index-sanity-check",))
        said = tools.dump_log(index, options=("--verify-index-only",))
        assert "mismatch" not in said.lower(), said
        assert "out of order" not in said.lower(), said


def test_producer_snapshots(tools: Tools, written: Path) -> None:
    snapshots = files(written, "dump-5-t", ".snapshot")
    assert snapshots
    said = tools.dump_log(*snapshots)
    assert f"lastSequence: {RECORDS - 1}" in said, said


def test_the_offsets_topic(tools: Tools, written: Path) -> None:
    segments = files(written, "__consumer_offsets", ".log")
    said = tools.dump_log(*segments, options=("--offsets-decoder",))
    assert '"group":"g","topic":"dump-5-t","partition":0' in said, said
    assert '"offset":17' in said
    assert '"protocolType":"consumer"' in said
    kinds = {int(each) for each in re.findall(r'key: \{"type":"(\d+)"', said)}
    assert kinds == {1, 2, *KINDS}
    assert '"data":{"groupId":"consumers","memberId":"a"}} payload: {"version":"0"' in said
    assert '"regularExpression":"dump.*"}} payload: {"version":"0","data":{"topics":["dump' in said


def test_active_segment_of_a_running_broker(tools: Tools, tmp_path: Path) -> None:
    """The tool looked in vain for the indexes of a segment without an index entry."""
    with Broker(CONFIGS, data_dir=tmp_path) as broker:
        for topic, values in (("empty", []), ("short", [b"a", b"b"])):
            broker.create_topic(topic)
            for value in values:
                broker.produce(topic, value)
            for kind in (".index", ".timeindex"):
                (index,) = files(tmp_path, topic, kind)
                said = tools.dump_log(index)
                assert "mismatch" not in said.lower(), said
            said = tools.dump_log(*files(tmp_path, topic, ".log"))
            assert len(re.findall(r"\| offset: \d+", said)) == len(values), said
