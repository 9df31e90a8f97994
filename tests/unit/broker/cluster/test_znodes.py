"""Nodes have the content that Kafka's tools expect, and decoders accept no other."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.znodes import (
    BrokerEndpoint,
    BrokerInfo,
    FeatureRange,
    LeaderAndIsr,
    ProducerIdBlock,
    TopicAssignment,
    ZnodeError,
)
from barnabas.broker.store.tree import check_path


def test_registration_has_kafkas_form() -> None:
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
def test_registration_has_the_end_of_the_last_run(restart: znodes.Restart) -> None:
    info = BrokerInfo(3, (BrokerEndpoint("A", "PLAINTEXT", "a", 1),), restart=restart)
    data = znodes.encode_broker(info, 0)
    assert json.loads(data)["restart"] == restart.value
    assert znodes.decode_broker(3, data, -1) == info


def test_registration_by_kafka_counts_as_a_clean_end() -> None:
    info = BrokerInfo(3, (BrokerEndpoint("A", "PLAINTEXT", "a", 1),))
    value = json.loads(znodes.encode_broker(info, 0))
    del value["restart"]
    assert znodes.decode_broker(3, json.dumps(value).encode(), -1).restart is znodes.Restart.CLEAN


def test_topic_node_has_kafkas_form() -> None:
    topic = TopicAssignment(bytes(range(16)), {0: (1, 2), 1: (2, 1)})
    data = znodes.encode_topic(topic)
    value = json.loads(data)
    assert (value["version"], value["partitions"]) == (3, {"0": [1, 2], "1": [2, 1]})
    assert value["topic_id"] == "AAECAwQFBgcICQoLDA0ODw"
    assert znodes.decode_topic(data) == topic


def test_reassignment_in_a_topic_node_has_kafkas_form() -> None:
    topic = TopicAssignment(bytes(16), {0: (3, 1, 2), 1: (2, 1)}, {0: (3,)}, {0: (1, 2)})
    data = znodes.encode_topic(topic)
    assert data == (
        b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAA",'
        b'"partitions":{"0":[3,1,2],"1":[2,1]},'
        b'"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1,2]}}'
    )
    assert znodes.decode_topic(data) == topic


def test_partition_state_has_kafkas_form() -> None:
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


def test_small_nodes_survive_a_round_trip() -> None:
    block = ProducerIdBlock(1, 1000, 1999)
    assert znodes.decode_producer_id_block(znodes.encode_producer_id_block(block)) == block
    assert znodes.decode_controller(znodes.encode_controller(4, 1)) == 4
    assert znodes.decode_controller_epoch(znodes.encode_controller_epoch(8)) == 8
    assert znodes.decode_cluster_id(znodes.encode_cluster_id("id")) == "id"
    assert znodes.decode_log_dir_event(znodes.encode_log_dir_event(2)) == 2
    assert znodes.decode_config(znodes.encode_config({"a": "b"})) == {"a": "b"}
    change = znodes.encode_config_change(znodes.config_entity("groups", "a/b"))
    assert znodes.decode_config_change(change) == "groups/a%2Fb"


@given(st.text(min_size=1))
def test_entity_may_have_any_name(name: str) -> None:
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
@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"{}", b'{"config": 1}', b"\xff", b"null", b"[" * 100_000],
    ids=lambda data: repr(data[:20]),
)
def test_other_content_is_an_error(decode: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(ZnodeError):
        decode(data)
