"""Three brokers with data, names that would like to be code, and a console with a browser."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="the extra `test` is not installed")

from playwright.sync_api import Browser

from tests.console.browser import CHROMIUM, Tab, chromium
from tests.console.scene import Scene
from tests.support.levers import TOKEN, BrokersWithLevers, brokers_with_levers
from tests.support.running_console import RunningConsole

NewTab = Callable[..., Tab]
KEYS = (
    "metadata.session.timeout.ms=3000",
    "offsets.topic.num.partitions=3",
    "transaction.state.log.num.partitions=3",
    "transaction.two.phase.commit.enable=true",
)


# Before pytest-xdist looks for groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and item.path.is_relative_to(Path(__file__).parent):
            # One process has the three brokers, and one the browser of a module without them.
            group = "console" if "brokers" in item.fixturenames else item.path.stem
            item.add_marker(pytest.mark.xdist_group(group))
            if CHROMIUM is None:
                item.add_marker(pytest.mark.skip(reason="Debian's package chromium is missing"))


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokersWithLevers]:
    directory = tmp_path_factory.mktemp("brokers")
    with brokers_with_levers(directory, *KEYS) as brokers:
        yield brokers


@pytest.fixture(scope="session")
def scene(brokers: BrokersWithLevers) -> Iterator[Scene]:
    scene = Scene(brokers.servers)
    yield scene
    scene.close()


@pytest.fixture(scope="session")
def console(brokers: BrokersWithLevers, scene: Scene) -> Iterator[RunningConsole]:  # noqa: ARG001
    options = {"allow_changes": True, "faults": brokers.faults, "faults_token": TOKEN}
    with RunningConsole(brokers.servers, **options) as console:
        yield console


# While Playwright runs, its event loop counts as running in this thread: no longer than a module.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def new_tab(browser: Browser, console: RunningConsole) -> Iterator[NewTab]:
    """Open tabs; at the end each must have been quiet."""
    tabs: list[Tab] = []

    def new(**options: Any) -> Tab:
        tabs.append(Tab(browser, console.url, **options))
        return tabs[-1]

    yield new
    for tab in tabs:
        tab.require_quiet()
        tab.close()


@pytest.fixture
def tab(new_tab: NewTab) -> Tab:
    return new_tab()


@pytest.fixture
def pictures() -> Path | None:
    """The folder for pictures of pages; None if none are wanted."""
    folder = os.environ.get("BARNABAS_CONSOLE_PICTURES")
    return None if folder is None else Path(folder)
