"""Every page of the console about Apache Kafka, in ZooKeeper mode too, in a real browser."""

from collections.abc import Iterator

import pytest

from tests.console.browser import NARROW, Tab
from tests.console.scene import PAGES, Scene
from tests.support.kafka.node import Kafka
from tests.support.kafka.zookeeper_node import ZooKeeperKafka
from tests.support.running_console import RunningConsole

ONE = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
LEVERS = ("lever",)
"""The pages that only brokers of Barnabas with --faults have."""


@pytest.fixture(scope="module", params=[Kafka, ZooKeeperKafka], ids=["4.4", "3.9-zookeeper"])
def console(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningConsole]:
    with request.param(tmp_path_factory.mktemp("kafka"), properties=ONE) as node:
        scene = Scene(node.bootstrap_servers, replicas=1)
        with RunningConsole(node.bootstrap_servers, allow_changes=True) as console:
            yield console
        scene.close()


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
