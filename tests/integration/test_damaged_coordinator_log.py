"""A damaged batch in a coordinator's log, and the repair that RELIABILITY.md describes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client.reassignment_plan import plan_text
from barnabas.testing import Cluster
from tests.support.command_line import run
from tests.support.waiting import until

TIMEOUT = 20.0
OFFSETS = "__consumer_offsets"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster({"offsets.topic.num.partitions": "1"}, data_dir=tmp_path / "data") as cluster:
        client = admin(cluster)
        client.create_topics([NewTopic("t", 1)])["t"].result(TIMEOUT)
        yield cluster


def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


def commit(cluster: Cluster, offset: int) -> int:
    """Commit an offset of a group without members; return the error code."""
    wanted = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, offset)])
    client = admin(cluster)
    told = client.alter_consumer_group_offsets([wanted])["g"].result(TIMEOUT)
    error = told.topic_partitions[0].error
    return 0 if error is None else int(error.code())


def read(cluster: Cluster) -> int:
    wanted = ConsumerGroupTopicPartitions("g")
    client = admin(cluster)
    told = client.list_consumer_group_offsets([wanted])["g"].result(TIMEOUT)
    return int(told.topic_partitions[0].offset)


def let_rot(log: Path) -> None:
    """Flip a bit of the first record."""
    with log.open("r+b") as file:
        file.seek(70)
        byte = file.read(1)[0]
        file.seek(70)
        file.write(bytes([byte ^ 1]))


def reassign(cluster: Cluster, plan: Path, *replicas: int) -> None:
    plan.write_text(plan_text({(OFFSETS, 0): replicas}))
    done = run("partitions", "reassign", str(plan), "--wait", servers=cluster.bootstrap_servers)
    assert done.returncode == 0, done.stderr


def test_coordinator_with_a_damaged_log_is_replaced_and_its_replica_recreated(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    until(lambda: commit(cluster, 7) == 0)
    cluster.wait_until_in_sync()
    here = cluster.coordinator_of(group="g")
    others = [broker for broker in cluster.broker_ids if broker != here]
    cluster.move_coordinator(others[0], group="g")
    let_rot(tmp_path / "data" / f"broker-{here}" / f"{OFFSETS}-0" / f"{0:020d}.log")
    cluster.move_coordinator(here, group="g")
    until(lambda: "coordinator partition not served" in caplog.text)
    assert commit(cluster, 8) == KafkaError.NOT_COORDINATOR
    assert cluster.coordinator_of(group="g") == here

    reassign(cluster, tmp_path / "plan.json", *others)
    until(lambda: commit(cluster, 9) == 0)
    reassign(cluster, tmp_path / "plan.json", here, *others)
    cluster.move_coordinator(here, group="g")
    until(lambda: commit(cluster, 10) == 0)
    assert read(cluster) == 10
