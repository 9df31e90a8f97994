"""The sinks of pipelines in the console: decisions, and transactions that wait for one."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.operations.sinks.decisions import (
    DecidedWinner,
    Identity,
    Place,
    SinkDecision,
    encode,
    key_of,
)
from barnabas.testing import Broker
from tests.support.running_console import RunningConsole

QUERY = "query <b>&"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": "true"}) as broker:
        for topic in ("out", "sums.decisions", "empty.decisions", "odd.decisions"):
            broker.create_topic(topic)
        broker.produce("odd.decisions", "no <i>decision</i>")
        asyncio.run(fill(broker.bootstrap_servers))
        yield broker


@pytest.fixture(scope="module")
def console(broker: Broker) -> Iterator[RunningConsole]:
    with RunningConsole(broker.bootstrap_servers) as console:
        yield console


@asynccontextmanager
async def task(cluster: Cluster, id: str) -> AsyncIterator[Identity]:
    """Leave a prepared transaction of a task open; yield who has written it."""
    producer = TransactionalProducer(cluster, id, two_phase=True)
    await producer.init_transactions()
    await producer.begin_transaction()
    await (await producer.send("out", b"row", partition=0))
    await producer.prepare_transaction()
    yield Identity(*producer.identity)


async def decide(cluster: Cluster, *decisions: SinkDecision) -> None:
    async with TransactionalProducer(cluster, "sums.driver") as driver:
        await driver.init_transactions()
        for each in decisions:
            async with driver.transaction():
                await driver.send("sums.decisions", encode(each), key=key_of("sums"))


async def fill(servers: str) -> None:
    async with (
        Cluster(servers) as cluster,
        task(cluster, "sums.a.0") as decided,
        task(cluster, "sums.a.1"),
    ):
        before = DecidedWinner("sums.a.9", decided, decided, 30, Place("out", 0, 0))
        winner = DecidedWinner("sums.a.0", decided, decided, 4_000, Place("out", 0, 0))
        await decide(
            cluster,
            SinkDecision(QUERY, 6, None, (before,), (before,)),
            SinkDecision(QUERY, 7, None, (winner,)),
        )


def test_sinks_are_listed_with_their_last_decision(console: RunningConsole) -> None:
    page = console.get("/pipelines")
    assert page.code == []
    assert "3 sinks" in page.words
    assert f"sums 7 {QUERY} 4 000" in page.words
    assert "empty no decision yet 0 0" in page.words
    assert "odd the record at offset 0 of odd.decisions is no decision" in page.words
    assert "1 sink:" in console.get("/pipelines", q="SUM").words


def test_page_of_a_sink_has_decisions_and_open_transactions(console: RunningConsole) -> None:
    page = console.get("/pipeline", sink="sums")
    assert page.code == []
    assert "Open transactions 2" in page.words
    assert "sums.a.0 open without a timeout" in page.words
    assert page.words.count("commits it") == page.words.count("does not name it") == 1
    assert page.words.index("commits it") < page.words.index("sums.a.1")
    newest, older = page.words.index(f"7 {QUERY} 1 4"), page.words.index(f"6 {QUERY} 1 30 1")
    assert newest < older
    assert "/transaction?id=sums.a.0" in page.links


def test_sink_that_is_not_there_is_said(console: RunningConsole) -> None:
    assert console.request("/pipeline?sink=none").status == 404
