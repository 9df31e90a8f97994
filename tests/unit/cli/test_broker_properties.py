"""The properties of each of several brokers on one host."""

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from barnabas.cli.commands.cluster import cluster
from barnabas.cli.commands.serve import serve
from barnabas.cli.processes import supervisor
from barnabas.cli.processes.broker_properties import BrokerProperties
from barnabas.config.broker import BrokerConfig
from barnabas.config.key import ConfigError

ONE = {"broker.id": "4", "log.dirs": "/a, /b", "listeners": "PLAINTEXT://:9092"}


def of(number: int, *, count: int = 3, **more: str) -> dict[str, str]:
    added = {name.replace("_", "."): value for name, value in more.items()}
    return BrokerProperties({**ONE, **added}, count, "/a/metadata.socket").of(number)


def test_ids_and_ports_are_consecutive() -> None:
    assert [of(number)["broker.id"] for number in range(3)] == ["4", "5", "6"]
    assert [of(number)["listeners"] for number in range(3)] == [
        "PLAINTEXT://:9092,BROKERS://:9095",
        "PLAINTEXT://:9093,BROKERS://:9096",
        "PLAINTEXT://:9094,BROKERS://:9097",
    ]


def test_node_id_is_a_synonym_of_broker_id() -> None:
    second = BrokerProperties(
        {"node.id": "7", "log.dir": "/a", "listeners": "PLAINTEXT://:0"}, 2
    ).of(1)
    assert second["broker.id"] == "8"
    assert "node.id" not in second


def test_first_broker_has_given_directories_and_others_subdirectories() -> None:
    assert of(0)["log.dirs"] == "/a, /b"
    assert of(1)["log.dirs"] == "/a/broker.5,/b/broker.5"


def test_all_brokers_have_the_rack_of_the_host() -> None:
    assert {of(number)["broker.rack"] for number in range(3)} == {socket.gethostname()}
    assert of(1, broker_rack="r1")["broker.rack"] == "r1"


def test_properties_are_a_valid_configuration() -> None:
    config = BrokerConfig.from_properties(of(2, metrics_listener="localhost:9464"), strict=True)
    assert config.inter_broker_listener().address.port == 9097
    assert config.metrics_listener == "localhost:9466"
    assert config.metadata_socket == "/a/metadata.socket"


def test_configured_inter_broker_listener_is_used() -> None:
    own = of(
        1,
        listeners="CLIENT://:9092,INTERNAL://:19092",
        listener_security_protocol_map="CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
        inter_broker_listener_name="INTERNAL",
    )
    assert own["listeners"] == "CLIENT://:9093,INTERNAL://:19093"
    assert BrokerConfig.from_properties(own).inter_broker_listener().name == "INTERNAL"


def test_advertised_listeners_get_consecutive_ports() -> None:
    own = of(1, advertised_listeners="PLAINTEXT://kafka.example:29092")
    assert own["advertised.listeners"] == (
        "PLAINTEXT://kafka.example:29093,BROKERS://kafka.example:29096"
    )


def test_port_0_stays_0() -> None:
    assert of(2, listeners="PLAINTEXT://:0")["listeners"] == "PLAINTEXT://:0,BROKERS://:0"


def test_overlapping_ports_are_refused() -> None:
    listeners = {"listeners": "PLAINTEXT://:9092,OTHER://:9093"}
    with pytest.raises(click.UsageError, match=r"OTHER of broker 4 .* listen on port 9093"):
        BrokerProperties({**ONE, **listeners}, 2).check_ports()
    BrokerProperties(ONE, 8).check_ports()


def test_different_broker_id_and_node_id_are_refused() -> None:
    both = {**ONE, "node.id": "7"}
    with pytest.raises(ConfigError) as alone:
        BrokerConfig.from_properties(both)
    with pytest.raises(ConfigError) as beside_others:
        BrokerProperties(both, 2).of(0)
    assert str(beside_others.value) == str(alone.value)
    assert BrokerProperties({**ONE, "node.id": "4"}, 2).of(1)["broker.id"] == "5"


def test_cluster_up_accepts_broker_id_and_node_id(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Mapping[str, str]] = []
    monkeypatch.setattr(
        supervisor, "run_brokers", lambda properties, _, **__: told.append(properties)
    )
    for ids in ((), ("--set=node.id=7",), ("--set=broker.id=8",)):
        CliRunner().invoke(cluster, ["up", *ids], catch_exceptions=False)
    assert [BrokerProperties(each, 3).broker_id(0) for each in told] == [1, 7, 8]


def test_auto_counts_the_cores_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5, 6}, raising=False)
    assert supervisor.count_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert supervisor.count_cores() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert supervisor.count_cores() == 1


def test_brokers_with_data_are_counted_from_the_first_id(tmp_path: Path) -> None:
    properties = {"broker.id": "4", "log.dirs": f"{tmp_path}/a, {tmp_path}/b"}
    assert supervisor.count_stored(properties) == 1
    for name in ("a/broker.5", "b/broker.7", "b/broker.3", "b/broker.x", "b/broker-9"):
        (tmp_path / name).mkdir(parents=True)
    assert supervisor.count_stored(properties) == 4


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--replicas", "2"), "--replicas needs --processes"),
        (("--replicas", "3", "--processes", "2"), "3 replicas need 3 brokers or more"),
        (("--processes", "0"), "0 is not in the range x>=1"),
        (("--processes", "many"), "'many' is not a valid integer"),
    ],
)
def test_impossible_numbers_are_refused(
    arguments: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(serve, ["--data", str(tmp_path), *arguments])
    assert result.exit_code == 2
    assert told in result.output
    assert not list(tmp_path.iterdir())


def test_factors_in_the_properties_are_kept() -> None:
    given = {**ONE, "default.replication.factor": "2", "transaction.state.log.min.isr": "2"}
    config = BrokerConfig.from_properties(supervisor.add_replication(given, 2, None))
    assert config.default_replication_factor == 2
    assert config.offsets_topic_replication_factor == 1
    assert config.transaction_state_log_replication_factor == 1
    assert config.transaction_state_log_min_isr == 2


def test_replicas_on_zookeeper_are_left_to_the_keys() -> None:
    given = {**ONE, "zookeeper.connect": "zoo:2181"}
    assert supervisor.add_replication(given, 2, None) == given
    assert supervisor.add_replication(given, 2, 4)["offsets.topic.replication.factor"] == "4"
