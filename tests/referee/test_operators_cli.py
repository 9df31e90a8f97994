"""The commands of operators with Apache Kafka: its answers suffice for all of them."""

import json
import uuid
import zipfile
from pathlib import Path

import pytest

from tests.referee.brokers import Address
from tests.support.command_line import Cli

pytestmark = pytest.mark.xdist_group("referee")
ALONE = "it has no other replica"


@pytest.fixture
def cli(
    kafka: Address,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
) -> Cli:
    return Cli(f"{kafka.host}:{kafka.port}", (monkeypatch, capfdbinary), tmp_path)


@pytest.fixture
def topic(cli: Cli) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    cli("topics", "create", name, "-p", "2", "-r", "1")
    cli("produce", name, "-K", ":", "-p", "1", "-z", "gzip", stdin=b"a:1\na:2\nb:3\n")
    return name


def test_broker_alone_is_needed_by_its_partitions(cli: Cli, topic: str) -> None:
    code, out, _ = cli.run("cluster", "rolling-restart", "--check", "--json")
    (row,) = json.loads(out)
    assert (code, row["broker"], row["controller"]) == (3, 1, True)
    assert {f"{topic}-0: {ALONE}", f"{topic}-1: {ALONE}"} <= set(row["problems"])
    assert cli.json("brokers", "drain", "1", "--dry-run") == []
    code, out, _ = cli.run("brokers", "drain", "1", "--json")
    drained = json.loads(out)
    assert (code, drained["may_be_stopped"]) == (3, False)
    assert {"topic": topic, "partition": 0, "problem": ALONE} in drained["problems"]
    assert cli.json("brokers", "undrain", "1") == {"broker": 1, "leaders": 0}
    balance = cli.json("partitions", "balance", "--yes")
    assert (balance["changed"], len(balance["brokers"])) == (False, 1)


def test_topic_is_listed_by_pattern_and_analyzed(cli: Cli, topic: str) -> None:
    assert [row["topic"] for row in cli.json("topics", "list", f"{topic[:6]}*")] == [topic]
    found = cli.json("topics", "analyze", topic)
    assert (found["records"], found["distinct_keys"], found["codecs"]) == (3, 2, {"gzip": 1})
    assert found["frequent_keys"] == [{"key": "a", "records": 2}]


def test_bundle_has_what_kafka_tells(cli: Cli, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    answer = cli.json("debug", "bundle", "-o", str(path))
    assert answer["problems"] == []
    with zipfile.ZipFile(path) as file:
        assert topic in json.loads(file.read("cluster/topics.json"))
        assert "log.dirs" in json.loads(file.read("brokers/1/configs.json"))
        assert "brokers/1/metrics.txt" not in file.namelist()
