"""Apache Kafka's own command-line tools do their work against Barnabas."""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing.broker import Broker
from tests.referee import tools
from tests.referee.jars import require
from tests.referee.tools import tool

pytestmark = pytest.mark.xdist_group("referee-tools")


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    require()
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A topic of two partitions, with three records in the first place they fall."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    create = ("--create", "--topic", name, "--partitions", "2")
    tool(tools.TOPICS, bootstrap, *create)
    tool(tools.CONSOLE_PRODUCER, bootstrap, "--topic", name, stdin="one\ntwo\nthree\n")
    return name


def read(bootstrap: str, topic: str, *options: str) -> list[str]:
    """The values of a topic's three records."""
    arguments = ("--topic", topic, "--max-messages", "3", "--timeout-ms", "20000", *options)
    return tool(tools.CONSOLE_CONSUMER, bootstrap, *arguments).split()


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    """The end offset of each partition, as get-offsets says."""
    text = tool(tools.GET_OFFSETS, bootstrap, "--topic", topic)
    return {int(p): int(o) for p, o in re.findall(rf"{topic}:(\d+):(\d+)", text)}


def test_topics(bootstrap: str, topic: str) -> None:
    described = tool(tools.TOPICS, bootstrap, "--describe", "--topic", topic)
    assert "PartitionCount: 2" in described
    assert described.count("Leader: ") == 2
    tool(tools.TOPICS, bootstrap, "--alter", "--topic", topic, "--partitions", "3")
    assert "PartitionCount: 3" in tool(tools.TOPICS, bootstrap, "--describe", "--topic", topic)
    tool(tools.TOPICS, bootstrap, "--delete", "--topic", topic)
    assert topic not in tool(tools.TOPICS, bootstrap, "--list").split()


def test_configs(bootstrap: str, topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool(tools.CONFIGS, bootstrap, *entity, "--alter", "--add-config", "retention.ms=12345")
    assert "retention.ms=12345" in tool(tools.CONFIGS, bootstrap, *entity, "--describe")
    tool(tools.CONFIGS, bootstrap, *entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms=" not in tool(tools.CONFIGS, bootstrap, *entity, "--describe")
    every = ("--entity-type", "topics", "--entity-name", topic, "--describe", "--all")
    assert "cleanup.policy=delete" in tool(tools.CONFIGS, bootstrap, *every)


def test_get_offsets(bootstrap: str, topic: str) -> None:
    assert sum(ends(bootstrap, topic).values()) == 3


def test_delete_records(bootstrap: str, topic: str, tmp_path: Path) -> None:
    partition = max(ends(bootstrap, topic).items(), key=lambda end: end[1])[0]
    wanted = tmp_path / "offsets.json"
    wanted.write_text(
        f'{{"version": 1, "partitions":'
        f' [{{"topic": "{topic}", "partition": {partition}, "offset": 1}}]}}'
    )
    said = tool(tools.DELETE_RECORDS, bootstrap, "--offset-json-file", str(wanted))
    assert f"partition: {topic}-{partition}\tlow_watermark: 1" in said


def test_log_dirs(bootstrap: str, topic: str) -> None:
    said = tool(tools.LOG_DIRS, bootstrap, "--describe", "--topic-list", topic)
    assert f'"partition":"{topic}-0"' in said


def test_broker_api_versions(bootstrap: str) -> None:
    said = tool(tools.BROKER_API_VERSIONS, bootstrap)
    assert "Produce(0): 0 to 13 [usable: 13]" in said
    assert "Fetch(1): 4 to 18 [usable: 18]" in said


def test_consumer_groups(bootstrap: str, topic: str) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    named = ("--group", group)
    assert sorted(read(bootstrap, topic, *named, "--from-beginning")) == ["one", "three", "two"]
    assert group in tool(tools.CONSUMER_GROUPS, bootstrap, "--list").split()
    rows = tool(tools.CONSUMER_GROUPS, bootstrap, "--describe", *named)
    assert re.search(rf"{group}\s+{topic}\s+\d\s+3\s+3\s+0", rows), rows
    reset = ("--reset-offsets", *named, "--topic", topic, "--to-earliest", "--execute")
    tool(tools.CONSUMER_GROUPS, bootstrap, *reset)
    assert len(read(bootstrap, topic, *named)) == 3
    tool(tools.CONSUMER_GROUPS, bootstrap, "--delete", *named)
    assert group not in tool(tools.CONSUMER_GROUPS, bootstrap, "--list").split()


def test_producer_and_consumer_performance(bootstrap: str, topic: str) -> None:
    sent = tools.run(
        tools.PRODUCER_PERFORMANCE,
        *("--topic", topic, "--num-records", "5000", "--record-size", "100"),
        *("--throughput", "-1", "--command-property", f"bootstrap.servers={bootstrap}"),
    )
    assert "5000 records sent" in sent.text, sent
    assert sum(ends(bootstrap, topic).values()) == 5003
    count = ("--num-records", "5000", "--timeout", "20000")
    read = tool(tools.CONSUMER_PERFORMANCE, bootstrap, "--topic", topic, *count)
    assert re.search(r", 50\d\d,", read), read
