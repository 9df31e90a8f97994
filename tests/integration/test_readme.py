"""The commands and programs of README.md and of docs/client.md run."""

import asyncio
import re
import time
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from barnabas.client import cluster, consumer, group, offsets, producer, transactional_producer
from barnabas.testing import Broker
from tests.support.command_line import DEADLINE, ROOT, run_in_shell

pytest_plugins = ["pytester"]

PAGE = (ROOT / "README.md").read_text() + (ROOT / "docs" / "client.md").read_text()


def block(kind: str, text: str) -> str:
    """Return the block of a kind that has a text."""
    blocks = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (found,) = (each for each in blocks if text in each)
    return str(found)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_first_record_is_produced_and_consumed(broker: Broker, tmp_path: Path) -> None:
    commands = block("sh", "barnabas produce greetings").replace(".venv/bin/", "")
    assert run_in_shell(commands, broker.bootstrap_servers, tmp_path) == "hello\n"


def test_example_of_the_fixture_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(f"""
from kafka import KafkaProducer

def count_orders(servers, topic):
    producer = KafkaProducer(bootstrap_servers=servers)
    producer.send(topic, b"3").get(timeout=20)
    producer.close()

{block("python", "barnabas_broker")}""")
    pytester.runpytest_subprocess("-W", "ignore").assert_outcomes(passed=1)


async def test_client_ships_each_order_once(broker: Broker) -> None:
    modules = (cluster, consumer, group, offsets, transactional_producer)
    names: dict[str, Any] = {name: value for each in modules for name, value in vars(each).items()}
    program = block("python", "GroupMember").replace("localhost:9092", broker.bootstrap_servers)
    exec(f"async def ship():\n{indent(program, '    ')}", names)
    orders = [b"apples", b"pears", b"plums"]
    for topic in ("orders", "shipped"):
        await broker.aio.create_topic(topic)
    await broker.aio.produce("orders", *orders)
    async with asyncio.timeout(DEADLINE):
        shipping = asyncio.create_task(names["ship"]())
        shipped = asyncio.create_task(broker.aio.records("shipped", 3))
        await asyncio.wait([shipping, shipped], return_when=asyncio.FIRST_COMPLETED)
        shipping.cancel()
        await asyncio.wait([shipping])
        assert shipping.cancelled()
    assert [each.value for each in await shipped] == orders
    await broker.aio.wait_for_group("shippers", lag=0)


async def test_client_sends_whole_batches(broker: Broker) -> None:
    await broker.aio.create_topic("orders")
    names: dict[str, Any] = {**vars(cluster), **vars(producer), "time": time, "repeat": repeat}
    names |= {"values": [b"apples", b"pears", b"plums"], "delivered": []}
    program = block("python", "encode_batches").replace("localhost:9092", broker.bootstrap_servers)
    exec(f"async def send():\n{indent(program, '    ')}", names)
    await names["send"]()
    assert [each.result().offset for each in names["delivered"]] == [0]
    assert [each.value for each in await broker.aio.records("orders", 3)] == names["values"]
