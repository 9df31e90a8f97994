"""Apache Kafka and Barnabas go on with consumer groups (KIP-848) from each other's directory.

Both play the same, and stop. Each starts again with the records of `__consumer_offsets` that the
other one has written. Two things in them belong to one cluster alone and are translated: the ids
of topics, and the hash of a group's topics, which contains them.
"""

from pathlib import Path
from struct import pack
from typing import Any, NamedTuple, Self

import pytest

from barnabas.coordinator.group.consumer.records import GROUP, KINDS, ConsumerGroupRecord
from barnabas.coordinator.group.records import decode_record
from barnabas.protocol.messages.consumer_group_heartbeat import API
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.record import Record, build_batch, iter_records
from barnabas.testing import Broker
from tests.referee import given
from tests.referee.brokers import KAFKAS, OURS, Address, warm_up
from tests.referee.consumers import beat, describe, join, name_topics, topic
from tests.referee.given import Topic
from tests.referee.normalise import normalised
from tests.referee.releases import referee
from tests.referee.scenario import Peer
from tests.support.kafka.node import Kafka

pytestmark = [
    pytest.mark.xdist_group("referee-tools"),
    pytest.mark.skipif(referee() < (4, 4), reason="older releases have other records"),
]

ONE = {"offsets.topic.num.partitions": "1"}
LOG = "__consumer_offsets-0"


class Written(NamedTuple):
    """The records of a broker that has stopped, and its topics."""

    topics: list[Topic]
    records: list[Record]

    @classmethod
    def under(cls, data: Path, topics: list[Topic]) -> Self:
        """Read the log, without the groups by which `topic` waits: Kafka may need several tries."""
        records: list[Record] = []
        for segment in sorted((data / LOG).glob("*.log")):
            content = segment.read_bytes()
            for position, header in iter_headers(content):
                for each in iter_records(content, position, header):
                    value = None if each.value is None else bytes(each.value)
                    records.append(each._replace(key=bytes(each.key or b""), value=value))
        return cls(topics, [each for each in records if b"probe" not in (each.key or b"")])

    def groups(self) -> list[ConsumerGroupRecord]:
        """Return the records of consumer groups."""
        found = (decode_record(each.key or b"", each.value) for each in self.records)
        return [each for each in found if isinstance(each, ConsumerGroupRecord)]

    def of_one_cluster(self) -> list[bytes]:
        """Return what only this cluster has, as it stands in the records."""
        epochs = [each.value for each in self.groups() if each.kind == GROUP and each.value]
        hashes = [pack(">q", each.metadata_hash) for each in epochs]
        return [each.id for each in self.topics] + hashes


def give(data: Path, of: Written, to: Written) -> None:
    """Put the records of another broker in the place of the own ones of a directory."""
    translation = list(zip(of.of_one_cluster(), to.of_one_cluster(), strict=True))
    segment = bytearray()
    for offset, each in enumerate(of.records):
        value = each.value
        for theirs, own in translation:
            value = value and value.replace(theirs, own)
        segment += build_batch([each._replace(offset=offset, value=value)], leader_epoch=0)
    for file in (data / LOG).iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    (data / LOG / f"{0:020}.log").write_bytes(segment)
    # Everything is recovered, and no mark is about the records before.
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (data / name).unlink(missing_ok=True)
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)


def play(s: Peer, by: str) -> list[Topic]:
    """Leave groups of each kind: members that give up partitions, expressions, empty ones. Offsets
    have the name of their writer."""
    to, other = topic(s, partitions=4), topic(s, "other", partitions=2)
    shared, expressed, left, deleted = map(s.name, ("shared", "expressed", "left", "deleted"))
    for group in (shared, left):
        s.do(join(group, "a", to, instance_id="i", rack_id="r"))
        s.do(given.commit(group, to, 7, metadata=by, member_id="a", generation=2))
    s.do(join(shared, "b", to, other, server_assignor="range"))
    s.do(beat(shared, "a", 2, instance_id="i"))
    s.do(beat(left, "a", -1))
    fields = {"subscribed_topic_names": None, "subscribed_topic_regex": f"{other.name}.*"}
    s.do(join(expressed, "a", **fields))
    s.do(beat(expressed, "a", 1), until=lambda r: r.member_epoch == 2)
    given.committed(s, s.name("classic"), to, 3)
    given.committed(s, deleted, to, 3)
    s.do(join(deleted, "a"))
    s.do(beat(deleted, "a", -1))
    s.do(DeleteGroupsRequest(groups_names=[deleted]))
    return [to, other]


def seen(s: Peer, topics: list[Topic]) -> list[Any]:
    """Return what a broker says about the groups."""
    name_topics(s, *topics)
    groups = [s.name(each) for each in ("shared", "expressed", "left", "classic", "deleted")]

    def mine(answer: Any) -> Any:
        named = (each for each in answer.groups if each.group_id in groups)
        answer.groups = sorted(named, key=lambda each: each.group_id)
        return answer

    for group in groups:
        s.ask(describe(group), until=lambda r: r.groups[0].error_code not in (14, 15, 16))
        s.ask(given.offset_fetch(10, group, None))
    s.ask(ListGroupsRequest(), pick=mine)
    # Without the metadata: leaders have later epochs after the restart.
    return normalised(s.transcript)[len(topics) :]


def go_on(s: Peer, topics: list[Topic]) -> list[Any]:
    """Let the members go on; return the answers."""
    before = len(s.transcript)
    shared, expressed, left = map(s.name, ("shared", "expressed", "left"))
    s.ask(beat(shared, "a", 2, instance_id="i", topic_partitions=[]))
    s.ask(beat(shared, "b", 3))
    s.ask(beat(expressed, "a", 2))
    s.ask(given.commit(shared, topics[0], 8, member_id="a", generation=3))
    s.ask(join(left, "c", topics[1]))
    return normalised(s.transcript)[before:]


def peer(servers: str) -> Peer:
    """Return a broker that coordinates groups."""
    host, _, port = servers.rpartition(":")
    warm_up(Address(host, int(port)))
    return Peer(host, int(port), API, 1, "exchanged")


def test_groups_go_on_from_the_directory_of_the_other(tmp_path: Path) -> None:
    kafka, ours = Kafka(tmp_path / "kafka", properties=KAFKAS | ONE), tmp_path / "ours"
    try:
        kafka.start()
        with peer(kafka.bootstrap_servers) as s:
            topics = play(s, "kafka")
            theirs_before = seen(s, topics)
        kafka.stop()
        theirs = Written.under(kafka.data, topics)
        with Broker(OURS | ONE, data_dir=ours) as broker, peer(broker.bootstrap_servers) as s:
            topics = play(s, "barnabas")
            ours_before = seen(s, topics)
        own = Written.under(ours, topics)
        assert {each.kind for each in own.groups()} == {*KINDS}
        assert str(theirs_before).replace("kafka", "barnabas") == str(ours_before)
        give(kafka.data, own, theirs)
        give(ours, theirs, own)
        kafka.start()
        with peer(kafka.bootstrap_servers) as s:
            assert seen(s, theirs.topics) == ours_before
            theirs_after = go_on(s, theirs.topics)
        with Broker(OURS | ONE, data_dir=ours) as broker, peer(broker.bootstrap_servers) as s:
            assert seen(s, own.topics) == theirs_before
            assert go_on(s, own.topics) == theirs_after
    finally:
        kafka.stop()
