"""The JSON answers of `barnabas transactions`, held against their schemas."""

import asyncio
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.two_phase import init_producer_id
from barnabas.testing import Broker
from tests.support.answers import holds
from tests.support.command_line import DEADLINE, Cli
from tests.support.newer_producer import NewerProducer
from tests.support.transactions_by_hand import hanging, lose_marker, wait_until_over

KEYS = {
    # Records of the older protocol are appended unverified, and can hang.
    "transaction.partition.verification.enable": "false",
    "transaction.state.log.num.partitions": "1",
    "transaction.two.phase.commit.enable": "true",
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(KEYS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers: str, cli: Cli) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    cli.at(servers)("topics", "create", name)
    return name


def opened(servers: str, topic: str) -> NewerProducer:
    """Begin a transaction whose id is the topic's name."""
    producer = NewerProducer(servers, topic).init()
    producer.send(topic, 0, b"open")
    return producer


def is_recent(at_ms: int) -> bool:
    return abs(time.time() * 1000 - at_ms) < DEADLINE * 1000


def test_an_open_transaction(servers: str, topic: str) -> None:
    producer = opened(servers, topic)
    (listed,) = holds(servers, "transactions", "list", "--pattern", topic)
    assert listed["producer_id"] == producer.producer_id
    described = holds(servers, "transactions", "describe", topic)
    assert described["partitions"] == [f"{topic}:0"]
    assert described["timeout_ms"] == 60_000
    assert is_recent(described["started_at_ms"])
    (stuck,) = holds(servers, "transactions", "why", topic)
    assert (stuck["transactional_id"], stuck["advice"] is None) == (topic, False)
    assert stuck["timeline"]
    assert all(is_recent(each["at_ms"]) for each in stuck["timeline"])
    fenced = holds(servers, "transactions", "fence", topic)
    assert fenced["epoch"] > producer.epoch
    described = holds(servers, "transactions", "describe", topic)
    assert (described["partitions"], described["started_at_ms"]) == ([], None)
    assert holds(servers, "transactions", "why", topic) == []


def test_a_transaction_of_two_phase_commit(servers: str, topic: str) -> None:
    async def keep() -> None:
        async with Cluster(servers) as cluster:
            await init_producer_id(cluster, topic, 60_000, keep_prepared=True, two_phase=True)

    opened(servers, topic)
    asyncio.run(keep())
    (listed,) = holds(servers, "transactions", "list", "--two-phase", "--pattern", topic)
    assert (listed["kept"], listed["age_ms"] < DEADLINE * 1000) == (True, True)
    described = holds(servers, "transactions", "describe", topic)
    client = "{client_producer_id}:{client_epoch}".format(**listed)
    assert described["kept_by"] == client
    (stuck,) = holds(servers, "transactions", "why", topic)
    assert client in stuck["keeper"]
    ended = holds(servers, "transactions", "end", topic, "--commit")
    assert (ended["transactional_id"], ended["committed"]) == (topic, True)


def test_a_hanging_transaction(servers: str, topic: str) -> None:
    start = hanging(servers, topic, committed_before=False)
    find = ("transactions", "find-hanging", topic, "--max-transaction-timeout", "0")
    (found,) = holds(servers, *find)
    assert (found["start_offset"], is_recent(found["last_timestamp_ms"])) == (start, True)
    assert 0 <= found["idle_ms"] < DEADLINE * 1000
    (stuck,) = holds(servers, "transactions", "why", topic)
    assert (stuck["state"], "hangs" in stuck["because"]) == ("Empty", True)
    (planned,) = holds(servers, "transactions", "repair", topic, code=1)
    assert (planned["decision"], planned["written"]) == ("unknown", False)
    place = (f"{topic}:0", "--start-offset", str(start))
    aborted = holds(servers, "transactions", "abort", *place)
    assert (aborted["start_offset"], aborted["aborted"]) == (start, True)
    assert holds(servers, *find) == []


def test_a_lost_marker(cli: Cli, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(KEYS, data_dir=data) as broker:
        cli.at(broker.bootstrap_servers)("topics", "create", "t")
        producer = NewerProducer(broker.bootstrap_servers, "x").init()
        producer.send("t", 0, b"a")
        producer.end(committed=True)
        wait_until_over(cli.at(broker.bootstrap_servers))
    lose_marker(data)
    with Broker(KEYS, data_dir=data) as broker:
        servers = broker.bootstrap_servers
        (stuck,) = holds(servers, "transactions", "why", "t")
        assert (stuck["state"], stuck["time_left_ms"]) == ("CompleteCommit", None)
        (planned,) = holds(servers, "transactions", "repair", "--dry-run")
        (written,) = holds(servers, "transactions", "repair")
        assert (planned["decision"], planned["written"]) == ("committed", False)
        assert written == {**planned, "written": True}
