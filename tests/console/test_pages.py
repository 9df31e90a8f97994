"""Every page of the console in a real browser: accessible, narrow, by keyboard, without scripts."""

from collections.abc import Iterator

import pytest

from barnabas.console.app import PAGES as SERVED
from tests.console.browser import require_accessible, require_no_scripts
from tests.console.conftest import NewTab
from tests.console.scene import OF_SECURITY, PAGES, Scene

ALL = pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)


@pytest.fixture(scope="module", autouse=True)
def held(scene: Scene) -> Iterator[None]:
    scene.hold()
    yield
    scene.release()


def test_all_pages_that_are_served_are_tested() -> None:
    # The address of the first names a hanging transaction, which only the older protocol leaves;
    # that of the second takes a form only.
    others = {"/transaction/abort", "/favourite"}
    # These have the form of /topic/create, or no form as /topic/delete.
    others |= {"/topic/partitions", "/topic/config", "/topic/repair", "/group/delete"}
    opened = (*PAGES.values(), *OF_SECURITY.values())
    tested = {each.partition("?")[0] for each in opened} | others
    assert {each.path for each in SERVED} <= tested


def test_all_that_share_the_brokers_run_in_one_worker(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("loadgroup", False):
        pytest.skip("tests are spread by groups with --dist loadgroup alone")
    here = [each for each in request.session.items if each.path == request.path]
    assert [each.nodeid for each in here if not each.nodeid.endswith("@console")] == []


@ALL
def test_page_is_accessible_used_by_keyboard_and_fits_a_narrow_screen(
    new_tab: NewTab, path: str
) -> None:
    require_accessible(new_tab(color_scheme="light", reduced_motion="reduce"), path)


@ALL
def test_page_works_without_scripts(new_tab: NewTab, path: str) -> None:
    require_no_scripts(new_tab(java_script_enabled=False), path)


def test_favourite_is_made_without_scripts(new_tab: NewTab) -> None:
    tab = new_tab(java_script_enabled=False)
    tab.open("/topic?name=orders")
    tab.page.click("text=Make it a favourite")
    tab.page.wait_for_url("**/topic?name=orders")
    assert tab.page.locator("text=No favourite any more").count() == 1
    tab.open("/topics")
    assert tab.page.locator("tbody tr").first.inner_text().startswith("orders favourite")


def test_a_topic_is_found_by_keyboard_alone(new_tab: NewTab) -> None:
    tab = new_tab()
    tab.open("/")
    press = tab.page.keyboard.press
    press("Tab")
    assert tab.focused()["text"] == "To the content"
    press("Enter")
    assert tab.focused()["tag"] == "MAIN"
    _tab_to(tab, "Topics", back=True)
    press("Enter")
    tab.page.wait_for_url("**/topics")
    tab.page.locator("input[type=search]").focus()
    tab.page.keyboard.type("orders")
    press("Enter")
    tab.page.wait_for_url("**/topics?q=orders*")
    _tab_to(tab, "orders")
    press("Enter")
    tab.page.wait_for_url("**/topic?name=orders")


def _tab_to(tab, text: str, *, back: bool = False) -> None:
    for _ in range(60):
        tab.page.keyboard.press("Shift+Tab" if back else "Tab")
        found = tab.focused()
        if found is not None and (found["tag"], found["text"].strip()) == ("A", text):
            return
    raise AssertionError(f"{text} was not reached")
