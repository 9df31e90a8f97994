"""The JSON answers of commands about topics, groups, brokers and records, held against their
schemas."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from barnabas.client.cluster import Cluster as ClientCluster
from barnabas.client.producer import Producer
from barnabas.testing import Broker, Cluster
from tests.support.answers import holds
from tests.support.command_line import DEADLINE, run
from tests.support.newer_producer import NewerProducer


def test_topics(servers: str) -> None:
    made = holds(servers, "topics", "create", "answers-a", "answers-b", "-p", "2")
    assert [each["created"] for each in made] == [True, True]
    again = holds(servers, "topics", "create", "answers-a", "--if-not-exists")
    assert again == {"topic": "answers-a", "created": False, "id": None, "partitions": None}
    listed = holds(servers, "topics", "list", "--internal")
    assert {"topic": "answers-a", "partitions": 2, "replicas": 1, "id": made[0]["id"]} in listed
    described = holds(servers, "topics", "describe", "answers-a")
    assert (described["topic"], described["id"]) == ("answers-a", made[0]["id"])
    assert [each["partition"] for each in described["partitions"]] == [0, 1]
    lacking = holds(servers, "topics", "describe", "answers-a", "--at-min-isr", code=3)
    assert [each["lacks"] for each in lacking] == [["at-min-isr"]] * 2
    altered = holds(servers, "topics", "alter", "answers-a", "-c", "retention.ms=7d")
    assert altered == {"topic": "answers-a", "altered": True}
    produced = holds(servers, "produce", "answers-a", "-p", "1", stdin=b"a\nb\n")
    assert produced == {"topic": "answers-a", "records": 2}
    trimmed = holds(servers, "topics", "delete-records", "answers-a", "--before", "1", "-p", "1")
    assert trimmed == {"topic": "answers-a", "partition": 1, "start": 1}
    deleted = holds(servers, "topics", "delete", "answers-*", "--yes")
    assert deleted == [{"topic": f"answers-{name}", "deleted": True} for name in "ab"]


def test_groups(servers: str) -> None:
    holds(servers, "topics", "create", "answers-read", "-p", "2")
    holds(servers, "produce", "answers-read", "-p", "0", stdin=b"a\nb\n")
    reset = holds(
        servers, "groups", "reset-offsets", "answers", "-t", "answers-read", "--to-latest"
    )
    assert reset == [
        {"topic": "answers-read", "partition": 0, "was": None, "offset": 2},
        {"topic": "answers-read", "partition": 1, "was": None, "offset": 0},
    ]
    NewerProducer(servers, "answers-id").init().send("answers-read", 0, b"open")
    settings = {"bootstrap.servers": servers, "group.id": "answers"}
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe(["answers-read"])
        described = with_member(servers, consumer)
    (member,) = described["members"]
    assert member["assigned"] == ["answers-read:0", "answers-read:1"]
    first, second = described["partitions"]
    assert (first["held_back"], first["held_back_by"]) == (1, "answers-id")
    assert second["member"] == member["member"]
    assert described["group"] in [each["group"] for each in holds(servers, "groups", "list")]
    everything = holds(servers, "groups", "describe", "--all")
    assert "answers" in [each["group"] for each in everything]
    deleting = ("groups", "delete-offsets", "answers", "-t", "answers-read")
    assert holds(servers, *deleting) == {"group": "answers", "deleted": 2}
    deleted = holds(servers, "groups", "delete", "answers", "--yes")
    assert deleted == {"group": "answers", "deleted": True}


def with_member(servers: str, consumer: Consumer) -> dict[str, Any]:
    deadline = time.monotonic() + DEADLINE
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < deadline
    described: dict[str, Any] = holds(servers, "groups", "describe", "answers")
    return described


def test_brokers_and_configurations(servers: str) -> None:
    info = holds(servers, "cluster", "info")
    assert info["features"]["transaction.version"] == 2
    (broker,) = holds(servers, "brokers", "list")
    assert broker["address"] == info["brokers"][0]["address"] == servers
    described = holds(servers, "brokers", "describe", str(broker["broker"]))
    assert len(described["log_dirs"]) == 1
    holds(servers, "topics", "create", "answers-set")
    altered = holds(servers, "configs", "alter", "topic", "answers-set", "-s", "retention.ms=1h")
    assert altered == {"kind": "topic", "name": "answers-set", "altered": True}
    (entry,) = (
        each
        for each in holds(servers, "configs", "describe", "topic", "answers-set", "-v")
        if each["source"] == "topic"
    )
    assert (entry["value"], entry["type"], entry["read_only"]) == ("3600000", "long", False)
    assert entry["meaning"]
    every = holds(servers, "configs", "describe", "broker", str(broker["broker"]), "--all")
    assert {"static", "default"} <= {each["source"] for each in every}
    (place,) = holds(servers, "log-dirs", "describe")
    assert place["log_dir"] == described["log_dirs"][0]
    (replica,) = holds(servers, "log-dirs", "describe", "answers-set")
    assert replica["state"] == "here"


def test_records(servers: str) -> None:
    async def fill() -> None:
        async with ClientCluster(servers) as cluster, Producer(cluster) as producer:
            for key, value, headers in (
                (b"k", "\u00e9\n".encode(), (("a", b"1"), ("a", None), ("b", b"\xff"))),
                (b"\xff", None, ()),
                (None, b"\xfe", ()),
            ):
                await producer.send("answers-kept", value, key=key, headers=headers, timestamp=5)

    holds(servers, "topics", "create", "answers-kept")
    asyncio.run(fill())
    first, second, third = holds(servers, "consume", "answers-kept", "-o", "beginning", "-e")
    assert (first["timestamp_ms"], first["value"]) == (5, "\u00e9\n")
    assert first["headers"] == [["a", "1"], ["a", None], ["b", {"base64": "/w=="}]]
    assert (second["key_base64"], second["value"]) == ("/w==", None)
    assert (third["key"], third["value_base64"]) == (None, "/g==")


def test_records_of_internal_topics(servers: str) -> None:
    holds(servers, "topics", "create", "answers-known")
    holds(servers, "produce", "answers-known", stdin=b"a\n")
    run(
        *("consume", "answers-known", "-g", "answers-known", "-o", "beginning", "-c", "1"),
        servers=servers,
    )
    producer = NewerProducer(servers, "answers-known").init()
    producer.send("answers-known", 0, b"v")
    producer.end(committed=True)
    holds(servers, "groups", "delete", "answers-known", "--yes")
    decode = ("--decode", "-o", "beginning", "-e")
    groups = holds(servers, "consume", "__consumer_offsets", *decode)
    ours = [each for each in groups if each["key"]["group"] == "answers-known"]
    assert [each for each in ours if each["kind"] == "offset" and each["value"]]
    assert [
        each for each in ours if each["kind"] == "group" and (each["value"] or {}).get("members")
    ]
    assert ours[-1]["value"] is None
    (*_, last) = (
        each
        for each in holds(servers, "consume", "__transaction_state", *decode)
        if each["key"]["transactional_id"] == "answers-known"
    )
    assert last["value"]["state"] in ("PrepareCommit", "CompleteCommit")


def test_benchmarks(servers: str) -> None:
    how = ("--transactional-id", "answers", "--transaction-duration-ms", "1")
    produced, consumed = holds(
        servers, "benchmark", "produce", "answers-speed", "-n", "500", "--keep", *how
    )
    assert produced["commit_p50_ms"] > 0
    assert (consumed["phase"], consumed["p50_ms"]) == ("consume", None)
    copied = holds(
        servers,
        *("benchmark", "eos", "--input-topic", "answers-speed", "--output-topic", "answers-copy"),
        *("-n", "500"),
    )
    assert (copied["records"], copied["transactions"]) == (500, 1)


def test_problems_of_a_cluster() -> None:
    with Cluster(brokers=2) as cluster:
        servers = cluster.bootstrap_servers
        holds(servers, "topics", "create", "answers-lost", "-p", "2", "-r", "1")
        lost = holds(servers, "brokers", "list")[-1]["broker"]
        cluster.stop_broker(lost)
        deadline = time.monotonic() + DEADLINE
        while run("cluster", "health", servers=servers).returncode != 3:
            assert time.monotonic() < deadline
        found = holds(servers, "cluster", "health", code=3)
        assert {each["check"] for each in found} & {"brokers", "leaders"}


@pytest.fixture
def directories(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in "ab"]


@pytest.fixture
def broker(directories: list[str], tmp_path: Path) -> Iterator[Broker]:
    with Broker({"log.dirs": ",".join(directories)}, data_dir=tmp_path / "broker") as broker:
        yield broker


def test_log_directories(broker: Broker, directories: list[str]) -> None:
    servers = broker.bootstrap_servers
    holds(servers, "topics", "create", "answers-moved")
    (replica,) = holds(servers, "log-dirs", "describe", "answers-moved")
    (there,) = set(directories) - {replica["log_dir"]}
    move = ("log-dirs", "move", "answers-moved", "--broker", "0", "--to", there, "--wait")
    assert holds(servers, *move) == [{"topic": "answers-moved", "partition": 0, "result": "there"}]


def test_profiles(tmp_path: Path) -> None:
    def profile(*words: str) -> Any:
        return holds("", "profile", *words, XDG_CONFIG_HOME=str(tmp_path))

    assert profile("create", "here", "-b", "a:1,b:2") == {"profile": "here"}
    assert profile("use", "here") == {"profile": "here"}
    assert profile("list") == [
        {
            "profile": "here",
            "bootstrap_servers": ["a:1", "b:2"],
            "security_protocol": "PLAINTEXT",
            "in_use": True,
        }
    ]
    assert profile("use", "--none") == {"profile": None}
    assert profile("delete", "here") == {"profile": "here", "deleted": True}


def test_log_files(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        servers = broker.bootstrap_servers
        holds(servers, "topics", "create", "t")
        holds(servers, "produce", "t", "-H", "a=1", stdin=b"x" * 5000 + b"\n")
        producer = NewerProducer(servers, "id").init()
        for _ in range(2):
            producer.send("t", 0, b"v")
            producer.end(committed=False)
        holds(servers, "produce", "t", stdin=b"x" * 5000 + b"\n")
    rows = holds("", "dump-log", str(tmp_path / "t-0"), "--records")
    kinds = {Path(each["file"]).suffix for each in rows}
    assert kinds == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    assert next(each["headers"] for each in rows if "value" in each) == [["a", "1"]]
    assert [each["marker"] for each in rows if "marker" in each] == ["abort", "abort"]
