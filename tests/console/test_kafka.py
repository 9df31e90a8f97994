"""Every page of the console about Apache Kafka, in ZooKeeper mode too, in a real browser."""

import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.console.browser import NARROW, Tab
from tests.console.scene import PAGES, Scene
from tests.support.kafka.node import Kafka
from tests.support.kafka.tools import run
from tests.support.kafka.zookeeper_node import ZooKeeperKafka
from tests.support.running_console import RunningConsole

ONE = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
SHARERS: Final = "sharers <b>"
SHARE_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
LEVERS = ("lever",)
"""The pages that only brokers of Barnabas with --faults have."""


@pytest.fixture(scope="module", params=[Kafka, ZooKeeperKafka], ids=["4.4", "3.9-zookeeper"])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with request.param(tmp_path_factory.mktemp("kafka"), properties=ONE) as node:
        scene = Scene(node.bootstrap_servers, replicas=1)
        scene.hold()
        yield node.bootstrap_servers
        scene.close()


@pytest.fixture(scope="module")
def console(servers: str) -> Iterator[RunningConsole]:
    with RunningConsole(servers, allow_changes=True) as console:
        yield console


@pytest.mark.parametrize("path", [at for name, at in PAGES.items() if name not in LEVERS])
def test_page_fits_is_accessible_and_says_what_is_missing(
    console: RunningConsole, browser, path: str
) -> None:
    tab = Tab(browser, console.url, viewport=NARROW, color_scheme="dark", reduced_motion="reduce")
    tab.hold_still()
    words = tab.open(path)
    assert tab.page.locator("h1:visible").count() == 1
    assert tab.findings() == []
    assert tab.too_wide() == []
    tab.require_quiet()
    tab.close()
    missing = {
        "/timeline": "Events of broker 1 are missing: no HTTP endpoint (metrics.listener)",
        "/transaction": "The coordinator keeps no events: it is not a broker of Barnabas.",
        "/security": "No authorizer is set: everyone may do everything.",
    }
    assert missing.get(path.partition("?")[0], "") in words


def test_share_group_is_listed_and_its_page_says_what_is_missing(
    console: RunningConsole, servers: str, browser, request: pytest.FixtureRequest
) -> None:
    if "zookeeper" in request.node.name:
        pytest.skip("Kafka 3.9 has no share groups")
    words = ("--topic", "orders", "--group", SHARERS, "--timeout-ms", "3000")
    done = run(SHARE_CONSUMER, "--bootstrap-server", servers, *words)
    assert done.code == 0, done.errors
    tab = Tab(browser, console.url, viewport=NARROW)
    tab.hold_still()
    assert re.search(rf"{SHARERS}\s+share\s", tab.open("/groups?q=sharers"))
    tab.page.get_by_role("link", name=SHARERS, exact=True).click()
    assert "does not know the protocol of the group" in tab.page.inner_text("main")
    assert tab.findings() == []
    assert tab.too_wide() == []
    tab.require_quiet()
    tab.close()
