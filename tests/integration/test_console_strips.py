"""Aborted data and markers in the strips of partitions."""

import asyncio
import re
from collections.abc import Iterator

import pytest

from barnabas.client.cluster import Cluster as Client
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.console import spans
from barnabas.testing import Broker
from tests.support.running_console import RunningConsole


@pytest.fixture(scope="module")
def console() -> Iterator[RunningConsole]:
    """A partition with data 0, aborted 1 and 2, an abort 3, data 4, a commit 5, and data 6 to 9."""

    async def transact(servers: str) -> None:
        async with Client(servers) as client:
            producer = TransactionalProducer(client, "writer")
            await producer.init_transactions()
            for values, is_committed in ((("x", "y"), False), (("z",), True)):
                await producer.begin_transaction()
                for value in values:
                    await (await producer.send("orders", value.encode(), partition=0))
                end = producer.commit_transaction if is_committed else producer.abort_transaction
                await end()

    with Broker() as broker:
        broker.create_topic("orders")
        broker.create_topic("empty")
        broker.produce("orders", "first")
        asyncio.run(transact(broker.bootstrap_servers))
        broker.produce("orders", *map(str, range(4)))
        with RunningConsole(broker.bootstrap_servers) as console:
            yield console


def paths(text: str) -> dict[str, str]:
    return dict(re.findall(r'<path class="(\w+)" d="([^"]*)">', text))


@pytest.mark.parametrize("bytes_at_once", [1 << 18, 1], ids=["at once", "batch by batch"])
def test_aborted_data_and_markers_are_drawn(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch, bytes_at_once: int
) -> None:
    small = spans._SETTINGS._replace(partition_max_bytes=bytes_at_once, max_bytes=bytes_at_once)
    monkeypatch.setattr(spans, "_SETTINGS", small)
    answered = console.get("/topic", name="orders", end="on")
    counted = "offsets 0 to below 10: 2 aborted, 1 commit marker, 1 abort marker"
    assert counted in answered.words
    assert "not read" not in answered.words
    assert paths(answered.text) == {
        "aborted": "M100.0 8V32H300.0V8Z",
        "aborts": "M300.0 8V32H400.0V8Z",
        "commits": "M500.0 8V32H600.0V8Z",
    }


def test_only_the_last_offsets_are_read(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "MOST_OFFSETS", 8)
    answered = console.get("/topic", name="orders", end="on")
    assert "offsets 2 to below 10: 1 aborted, 1 commit marker, 1 abort" in answered.words
    assert paths(answered.text)["aborted"] == "M0.0 8V32H125.0V8Z"


def test_page_says_what_was_not_read(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "MOST_BYTES", 1)
    small = spans._SETTINGS._replace(partition_max_bytes=1, max_bytes=1)
    monkeypatch.setattr(spans, "_SETTINGS", small)
    words = console.get("/topic", name="orders", end="on").words
    assert "offsets 0 to below 1: 0 aborted" in words
    assert "not read: 1 to below 10" in words


def test_page_from_the_log_start_reads_no_data(console: RunningConsole) -> None:
    answered = console.get("/topic", name="orders")
    assert paths(answered.text) == {}
    assert "aborted," not in answered.words
    (link,) = {each for each in answered.links if "end=on" in each}
    assert "2 aborted" in console.request(link).words


def test_empty_partition_has_nothing_to_read(console: RunningConsole) -> None:
    answered = console.get("/topic", name="empty", end="on")
    assert "offsets 0 to below 0: 0 aborted" in answered.words
    assert "not read" not in answered.words
