"""Nodes hold what Kafka's tools expect, and only that is read back."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.tree import check_path
from barnabas.broker.metadata.znodes import (
    BrokerEndpoint,
    BrokerInfo,
    FeatureRange,
    LeaderAndIsr,
    ProducerIdBlock,
    TopicAssignment,
    ZnodeError,
)


def test_a_registration_is_kafkas() -> None:
    info = BrokerInfo(
        3,
        (
            BrokerEndpoint("INTERNAL", "PLAINTEXT", "10.0.0.1", 9093),
            BrokerEndpoint("OUTSIDE", "PLAINTEXT", "::1", 9092),
        ),
        rack="r1",
        features={"transaction.version": FeatureRange(0, 2)},
    )
    data = znodes.encode_broker(info, 17)
    value = json.loads(data)
    assert value["endpoints"] == ["INTERNAL://10.0.0.1:9093", "OUTSIDE://[::1]:9092"]
    assert (value["version"], value["host"], value["timestamp"]) == (5, "10.0.0.1", "17")
    assert value["features"] == {"transaction.version": {"min_version": 0, "max_version": 2}}
    assert znodes.decode_broker(3, data, 42) == info._replace(epoch=42)


@pytest.mark.parametrize("restart", znodes.Restart)
def test_a_registration_tells_how_the_last_run_ended(restart: znodes.Restart) -> None:
    info = BrokerInfo(3, (BrokerEndpoint("A", "PLAINTEXT", "a", 1),), restart=restart)
    data = znodes.encode_broker(info, 0)
    assert json.loads(data)["restart"] == restart.value
    assert znodes.decode_broker(3, data, -1) == info


def test_a_registration_of_kafkas_own_ended_cleanly_as_far_as_anyone_knows() -> None:
    info = BrokerInfo(3, (BrokerEndpoint("A", "PLAINTEXT", "a", 1),))
    value = json.loads(znodes.encode_broker(info, 0))
    del value["restart"]
    assert znodes.decode_broker(3, json.dumps(value).encode(), -1).restart is znodes.Restart.CLEAN


def test_a_topics_node_is_kafkas() -> None:
    topic = TopicAssignment(bytes(range(16)), {0: (1, 2), 1: (2, 1)})
    data = znodes.encode_topic(topic)
    value = json.loads(data)
    assert (value["version"], value["partitions"]) == (3, {"0": [1, 2], "1": [2, 1]})
    assert value["topic_id"] == "AAECAwQFBgcICQoLDA0ODw"
    assert znodes.decode_topic(data) == topic


def test_a_topics_node_says_what_is_reassigned_as_kafkas_does() -> None:
    topic = TopicAssignment(bytes(16), {0: (3, 1, 2), 1: (2, 1)}, {0: (3,)}, {0: (1, 2)})
    data = znodes.encode_topic(topic)
    assert data == (
        b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAA",'
        b'"partitions":{"0":[3,1,2],"1":[2,1]},'
        b'"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1,2]}}'
    )
    assert znodes.decode_topic(data) == topic


def test_a_partitions_state_is_kafkas() -> None:
    state = LeaderAndIsr(1, 5, (1, 2), 3)
    data = znodes.encode_state(state)
    assert json.loads(data) == {
        "controller_epoch": 3,
        "leader": 1,
        "version": 1,
        "leader_epoch": 5,
        "isr": [1, 2],
    }
    decoded = znodes.decode_state(data, 9)
    assert (decoded, decoded.partition_epoch) == (state, 9)


def test_small_nodes_come_back() -> None:
    block = ProducerIdBlock(1, 1000, 1999)
    assert znodes.decode_producer_id_block(znodes.encode_producer_id_block(block)) == block
    assert znodes.decode_controller(znodes.encode_controller(4, 1)) == 4
    assert znodes.decode_controller_epoch(znodes.encode_controller_epoch(8)) == 8
    assert znodes.decode_cluster_id(znodes.encode_cluster_id("id")) == "id"
    assert znodes.decode_log_dir_event(znodes.encode_log_dir_event(2)) == 2
    assert znodes.decode_config(znodes.encode_config({"a": "b"})) == {"a": "b"}
    change = znodes.encode_config_change("groups", "a/b")
    assert znodes.decode_config_change(change) == ("groups", "a/b")


@given(st.text(min_size=1))
def test_an_entity_may_have_any_name(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    path = znodes.config_path("groups", name)
    check_path(path)
    assert path.count("/") == 3
    assert znodes.config_name(path.rpartition("/")[2]) == name


@pytest.mark.parametrize(
    "decode",
    [
        znodes.decode_topic,
        znodes.decode_controller,
        znodes.decode_controller_epoch,
        znodes.decode_config,
        znodes.decode_features,
        znodes.decode_cluster_id,
        znodes.decode_producer_id_block,
        lambda data: znodes.decode_state(data, 0),
        lambda data: znodes.decode_broker(1, data, 0),
    ],
)
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"config": 1}', b"\xff", b"null"])
def test_anything_else_is_an_error(decode: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(ZnodeError):
        decode(data)
