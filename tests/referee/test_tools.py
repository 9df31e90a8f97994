"""Apache Kafka's command-line tools work with Barnabas."""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing.broker import Broker
from tests.support.kafka import tools as kafka
from tests.support.kafka.tools import Tool, Tools

pytestmark = pytest.mark.xdist_group("referee-tools")


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def tool(tools: Tools, bootstrap: str) -> Tool:
    return tools.at(bootstrap)


@pytest.fixture
def topic(tool: Tool) -> str:
    """Create a topic of two partitions with three records, whichever partitions they go to."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    create = ("--create", "--topic", name, "--partitions", "2")
    tool(kafka.TOPICS, *create)
    tool(kafka.CONSOLE_PRODUCER, "--topic", name, stdin="one\ntwo\nthree\n")
    return name


def read(bootstrap: str, topic: str, *options: str) -> list[str]:
    """Return the values of a topic's three records. Each run of the console consumer needs a JVM of
    its own, because it counts records in a static field."""
    place = ("--bootstrap-server", bootstrap, "--topic", topic)
    until = ("--max-messages", "3", "--timeout-ms", "20000")
    done = kafka.run(kafka.CONSOLE_CONSUMER, *place, *until, *options)
    assert done.code == 0, done
    return done.text.split()


def ends(tool: Tool, topic: str) -> dict[int, int]:
    """Return the end offset of each partition, as get-offsets prints it."""
    text = tool(kafka.GET_OFFSETS, "--topic", topic)
    return {int(p): int(o) for p, o in re.findall(rf"{topic}:(\d+):(\d+)", text)}


def test_topics(tool: Tool, topic: str) -> None:
    described = tool(kafka.TOPICS, "--describe", "--topic", topic)
    assert "PartitionCount: 2" in described
    assert described.count("Leader: ") == 2
    tool(kafka.TOPICS, "--alter", "--topic", topic, "--partitions", "3")
    assert "PartitionCount: 3" in tool(kafka.TOPICS, "--describe", "--topic", topic)
    tool(kafka.TOPICS, "--delete", "--topic", topic)
    assert topic not in tool(kafka.TOPICS, "--list").split()


def test_configs(tool: Tool, topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool(kafka.CONFIGS, *entity, "--alter", "--add-config", "retention.ms=12345")
    assert "retention.ms=12345" in tool(kafka.CONFIGS, *entity, "--describe")
    tool(kafka.CONFIGS, *entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms=" not in tool(kafka.CONFIGS, *entity, "--describe")
    every = ("--entity-type", "topics", "--entity-name", topic, "--describe", "--all")
    assert "cleanup.policy=delete" in tool(kafka.CONFIGS, *every)


def test_get_offsets(tool: Tool, topic: str) -> None:
    assert sum(ends(tool, topic).values()) == 3


def test_delete_records(tool: Tool, topic: str, tmp_path: Path) -> None:
    partition = max(ends(tool, topic).items(), key=lambda end: end[1])[0]
    wanted = tmp_path / "offsets.json"
    wanted.write_text(
        f'{{"version": 1, "partitions":'
        f' [{{"topic": "{topic}", "partition": {partition}, "offset": 1}}]}}'
    )
    said = tool(kafka.DELETE_RECORDS, "--offset-json-file", str(wanted))
    assert f"partition: {topic}-{partition}\tlow_watermark: 1" in said


def test_log_dirs(tool: Tool, topic: str) -> None:
    said = tool(kafka.LOG_DIRS, "--describe", "--topic-list", topic)
    assert f'"partition":"{topic}-0"' in said


def test_broker_api_versions(tool: Tool) -> None:
    said = tool(kafka.BROKER_API_VERSIONS)
    assert "Produce(0): 0 to 13 [usable: 13]" in said
    assert "Fetch(1): 4 to 18 [usable: 18]" in said


def test_features(tools: Tools, tool: Tool, bootstrap: str) -> None:
    def levels() -> dict[str, tuple[str, ...]]:
        row = r"Feature: (\S+)\s+SupportedMinVersion: (\d+)\s+SupportedMaxVersion: (\d+)\s+"
        said = tool(kafka.FEATURES, "describe")
        found = re.findall(row + r"FinalizedVersionLevel: (\d+)", said)
        return {name: (lowest, highest, level) for name, lowest, highest, level in found}

    others = dict.fromkeys(("barnabas.transaction.registration", "group.version"), ("0", "1", "1"))
    assert levels() == {"transaction.version": ("0", "2", "2")} | others
    said = tool(kafka.FEATURES, "downgrade", "--feature", "transaction.version=1")
    assert "transaction.version was downgraded to 1" in said
    said = tool(kafka.FEATURES, "upgrade", "--feature", "transaction.version=2", "--dry-run")
    assert "transaction.version can be upgraded to 2" in said
    assert levels()["transaction.version"] == ("0", "2", "1")
    said = tool(kafka.FEATURES, "upgrade", "--feature", "transaction.version=2")
    assert "transaction.version was upgraded to 2" in said
    assert levels()["transaction.version"] == ("0", "2", "2")
    higher = ("upgrade", "--feature", "transaction.version=3")
    refused = tools.run(kafka.FEATURES, "--bootstrap-server", bootstrap, *higher)
    assert refused.code == 1
    assert "only supports versions 0-2" in refused.text + refused.errors


def test_consumer_groups(tool: Tool, bootstrap: str, topic: str) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    named = ("--group", group)
    assert sorted(read(bootstrap, topic, *named, "--from-beginning")) == ["one", "three", "two"]
    assert group in tool(kafka.CONSUMER_GROUPS, "--list").split()
    rows = tool(kafka.CONSUMER_GROUPS, "--describe", *named)
    assert re.search(rf"{group}\s+{topic}\s+\d\s+3\s+3\s+0", rows), rows
    reset = ("--reset-offsets", *named, "--topic", topic, "--to-earliest", "--execute")
    tool(kafka.CONSUMER_GROUPS, *reset)
    rows = tool(kafka.CONSUMER_GROUPS, "--describe", *named)
    assert re.search(rf"{group}\s+{topic}\s+\d\s+0\s+3\s+3", rows), rows
    assert len(read(bootstrap, topic, *named)) == 3
    tool(kafka.CONSUMER_GROUPS, "--delete", *named)
    assert group not in tool(kafka.CONSUMER_GROUPS, "--list").split()


def test_groups(tools: Tools, tool: Tool, bootstrap: str, topic: str) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    read(bootstrap, topic, "--group", group, "--from-beginning")
    for options in ((), ("--group-type", "classic"), ("--protocol", "consumer")):
        said = tool(kafka.GROUPS, "--list", *options)
        assert re.search(rf"{group}\s+Classic\s+consumer", said), said
    assert group not in tool(kafka.GROUPS, "--list", "--share")
    missing = ("--delete", "--group", f"{group}-missing")
    refused = tools.run(kafka.CONSUMER_GROUPS, "--bootstrap-server", bootstrap, *missing)
    assert "The group id does not exist" in refused.text + refused.errors, refused


def test_producer_and_consumer_performance(
    tools: Tools, tool: Tool, bootstrap: str, topic: str
) -> None:
    sent = tools.run(
        kafka.PRODUCER_PERFORMANCE,
        *("--topic", topic, "--num-records", "5000", "--record-size", "100"),
        *("--throughput", "-1", "--command-property", f"bootstrap.servers={bootstrap}"),
    )
    assert "5000 records sent" in sent.text, sent
    assert sum(ends(tool, topic).values()) == 5003
    count = ("--num-records", "5000", "--timeout", "20000")
    read = tool(kafka.CONSUMER_PERFORMANCE, "--topic", topic, *count)
    assert re.search(r", 50\d\d,", read), read
