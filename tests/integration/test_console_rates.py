"""The rates on the console's pages: by the counters of brokers, or else by offsets."""

import re
from collections.abc import Iterator

import pytest

from barnabas.console import rates, reads
from barnabas.testing import Broker
from tests.support.ports import free_port
from tests.support.running_console import RunningConsole
from tests.support.waiting import until

RECORDS = r"\d[\d.]* /s"
RATE = rf"{RECORDS} [\d.]+\w+/s"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rates, reads):
        monkeypatch.setattr(module, "PERIOD_S", 0.5)


@pytest.fixture(params=[True, False], ids=["counters", "offsets"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    keys = {"metrics.listener": f"127.0.0.1:{free_port()}"} if request.param else {}
    with Broker(keys) as broker:
        broker.create_topic("orders")
        broker.produce("orders", "first")
        yield broker


def test_pages_show_what_goes_in(broker: Broker, request: pytest.FixtureRequest) -> None:
    is_counted = "counters" in request.node.name
    with RunningConsole(broker.bootstrap_servers) as console:

        def moves() -> str | None:
            broker.produce("orders", *["x" * 1000] * 20)
            found = re.search(rf"in sync \S+ {RATE if is_counted else RECORDS}", topics())
            return found and found[0]

        def topics() -> str:
            return console.get("/topics").words

        assert until(moves, topics)
        assert ("by end offsets" in topics()) != is_counted
        overview = console.get("/").words
        assert bool(re.search(rf"Records in {RECORDS}", overview)) == is_counted
        assert ("Rates need the counters" in overview) != is_counted
        assert bool(re.search(RATE, console.get("/brokers").words)) == is_counted
        assert re.search(rf"Records in {RECORDS}", console.get("/topic", name="orders").words)
        if is_counted:
            until(lambda: "Records in 0 /s" in console.get("/topic", name="orders").words)
