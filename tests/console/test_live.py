"""Open pages move while brokers are killed and transactions flow."""

import re
from pathlib import Path

from playwright.sync_api import expect

from tests.console.browser import Tab
from tests.console.conftest import NewTab
from tests.console.scene import Scene
from tests.support.command_line import Served
from tests.support.ports import free_port
from tests.support.running_console import RunningConsole
from tests.support.waiting import until

IN_TIME_MS = 60_000
_PUT_BEHIND = """isHidden => {
    Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""
"""The steps of a browser when a tab is behind another one. Without a window it shows all."""


def test_pages_follow_transactions_and_the_death_of_each_broker(
    new_tab: NewTab, console: RunningConsole, scene: Scene
) -> None:
    overview, brokers, timeline, topic, still = (new_tab() for _ in range(5))
    overview.open("/")
    brokers.open("/brokers")
    timeline.open("/timeline")
    topic.open("/topic?name=orders")
    still.open("/topic?name=orders")
    still.page.click("#pause")
    tabs = (overview, brokers, timeline, topic, still)
    for tab in tabs:
        tab.page.evaluate("window.watched = true")
        tab.page.wait_for_timeout(100)
    kept = still.page.inner_text("main")
    scene.flow()
    until(lambda: scene.flowing > 3)
    for broker in (1, 2, 3):
        _shows_a_death(broker, overview, brokers, timeline, topic, console, scene)
    assert still.page.inner_text("main") == kept
    # No page was loaded again.
    assert all(tab.page.evaluate("window.watched") for tab in tabs)


def _shows_a_death(
    broker: int,
    overview: Tab,
    brokers: Tab,
    timeline: Tab,
    topic: Tab,
    console: RunningConsole,
    scene: Scene,
) -> None:
    """Kill a broker and start it again; transactions go on, and each page shows it."""

    def shows(tab: Tab, text: str | re.Pattern[str]) -> None:
        expect(tab.page.locator("main")).to_contain_text(text, timeout=IN_TIME_MS)

    dead = f"Broker {broker} has replicas and is not alive"
    console.carry_out(f"/lever?do=kill&broker={broker}")
    shows(brokers, dead)
    shows(overview, re.compile(rf"broker {broker}\s*not alive"))
    shows(timeline, f"leader elected: before {broker}, leader")
    flowing, before = scene.flowing, topic.page.inner_text("main")
    until(lambda: scene.flowing > flowing)
    expect(topic.page.locator("main")).not_to_have_text(before, timeout=IN_TIME_MS)
    console.carry_out(f"/lever?do=start&broker={broker}")
    expect(brokers.page.locator("main")).not_to_contain_text(dead, timeout=IN_TIME_MS)
    shows(overview, "The cluster is healthy")
    shows(timeline, re.compile(rf"broker {broker}\s+broker started: [^\n]*last_run killed"))


def test_tail_follows_the_end_of_a_topic(new_tab: NewTab, scene: Scene) -> None:
    tab = new_tab()
    tab.open("/tail?topic=orders&partition=2")
    scene.run(scene.send(2, b"a newer <b>record</b>"))
    moving = tab.page.locator("main")
    expect(moving).to_contain_text("a newer <b>record</b>", timeout=IN_TIME_MS)
    expect(moving).not_to_contain_text("Skipped")
    scene.run(scene.send(2, *[b"many"] * 70))
    expect(moving).to_contain_text("Skipped since the last update", timeout=IN_TIME_MS)


def test_search_is_kept_while_the_page_moves(new_tab: NewTab) -> None:
    tab = new_tab()
    tab.open("/timeline")
    box = tab.page.locator("input[type=search]")
    box.fill("ord")
    with tab.page.expect_response(lambda each: each.url.endswith("/timeline")):
        pass
    tab.page.wait_for_timeout(100)
    assert box.input_value() == "ord"
    assert tab.page.evaluate("document.activeElement.name") == "q"


def test_focus_stays_where_it_is_while_the_page_moves(new_tab: NewTab) -> None:
    tab = new_tab()
    tab.open("/topics")
    tab.page.locator("#live a", has_text="orders").first.focus()
    tab.page.evaluate("window.before = document.activeElement")
    until(lambda: tab.page.evaluate("!document.contains(window.before)"))
    assert tab.page.evaluate("document.activeElement.innerText") == "orders"


def test_tab_in_the_background_asks_for_nothing(new_tab: NewTab) -> None:
    seen, behind = new_tab(), new_tab()
    requests: dict[Tab, list[str]] = {seen: [], behind: []}
    for tab, urls in requests.items():
        tab.open("/topics")
        tab.page.on("request", lambda request, urls=urls: urls.append(request.url))

    def asks(tab: Tab, *, times: int) -> None:
        wanted = len(requests[tab]) + times
        # Its events come while it is spoken to.
        until(lambda: tab.page.evaluate("true") and len(requests[tab]) >= wanted)

    asks(behind, times=2)
    behind.page.evaluate(_PUT_BEHIND, True)
    before = len(requests[behind])
    asks(seen, times=3)
    behind.page.evaluate("true")
    assert len(requests[behind]) == before
    behind.page.evaluate(_PUT_BEHIND, False)
    asks(behind, times=2)


def test_lever_is_pulled_by_its_button(new_tab: NewTab) -> None:
    tab = new_tab()
    tab.open("/timeline")
    tab.page.click("#cut-clients-2")
    expect(tab.page.locator("main")).to_contain_text("Broker 2 will be cut off from its clients")
    assert tab.findings() == []
    tab.page.click("button.danger")
    expect(tab.page.locator("main")).to_contain_text("Done.")
    tab.page.click("text=See the result")
    tab.page.click("#heal")
    tab.page.click("button.danger")
    tab.page.click("text=See the result")
    expect(tab.page.locator("main")).to_contain_text("fault healed: links all", timeout=IN_TIME_MS)


def test_page_comes_back_whole_after_a_failure(browser, tmp_path: Path) -> None:
    port = free_port()
    with RunningConsole(f"127.0.0.1:{port}") as other:
        tab = Tab(browser, other.url)
        assert "The cluster does not answer" in tab.open("/topics")
        served = Served("-l", f"127.0.0.1:{port}", "-d", str(tmp_path))
        expect(tab.page.locator("input[type=search]")).to_be_visible(timeout=IN_TIME_MS)
        served.stop()
        expect(tab.page.locator("main")).to_contain_text("does not answer", timeout=IN_TIME_MS)
    expect(tab.page.locator("#stale")).to_be_visible(timeout=IN_TIME_MS)
    tab.close()


def test_console_that_has_ended_is_said(browser, brokers) -> None:
    with RunningConsole(brokers.servers) as other:
        tab = Tab(browser, other.url)
        tab.open("/")
    expect(tab.page.locator("#stale")).to_be_visible(timeout=IN_TIME_MS)
    tab.close()
