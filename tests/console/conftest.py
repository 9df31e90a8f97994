"""Three brokers with data, names that would like to be code, and a console with a browser."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="the extra `test` is not installed")

from playwright.sync_api import Browser

from tests.console.browser import CHROMIUM, Tab, chromium
from tests.console.scene import Scene
from tests.support.command_line import environment
from tests.support.ports import free_port, ports_in_a_row
from tests.support.running_console import RunningConsole
from tests.support.waiting import until

TOKEN = "pull-them-all-gently"
NewTab = Callable[..., Tab]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            # One process has the brokers and the browser.
            item.add_marker(pytest.mark.xdist_group("console"))
            if CHROMIUM is None:
                item.add_marker(pytest.mark.skip(reason="Debian's package chromium is missing"))


class Brokers:
    """The processes of `cluster up --faults`."""

    def __init__(self, directory: Path) -> None:
        # Only ports of this address are reserved.
        metrics, self.faults = ports_in_a_row(3), f"127.0.0.1:{free_port()}"
        file = directory / "servers"
        words = ["cluster", "up", "-l", f"127.0.0.1:{ports_in_a_row(3)}", "--faults", self.faults]
        words += ["--set", f"metrics.listener=127.0.0.1:{metrics}", "-d", str(directory / "data")]
        words += ["--set", "metadata.session.timeout.ms=3000", "--address-file", str(file)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "barnabas", *words],
            env=environment(BARNABAS_FAULTS_TOKEN=TOKEN),
            stdout=subprocess.DEVNULL,
        )
        until(lambda: file.exists() or self._process.poll() is not None)
        self.servers = file.read_text().strip()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path_factory.mktemp("brokers"))
    yield brokers
    brokers.stop()


@pytest.fixture(scope="session")
def scene(brokers: Brokers) -> Iterator[Scene]:
    scene = Scene(brokers.servers)
    yield scene
    scene.close()


@pytest.fixture(scope="session")
def console(brokers: Brokers, scene: Scene) -> Iterator[RunningConsole]:  # noqa: ARG001
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
