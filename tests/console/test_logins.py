"""The login in a real browser: by keyboard, narrow, without scripts, and its end."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from barnabas.console import sessions
from barnabas.testing import Broker, allow
from tests.console.browser import NARROW, Tab
from tests.console.conftest import NewTab
from tests.console.scene import CODE, USER
from tests.support.running_console import RunningConsole

PASSWORD = f"secret {CODE} ä"


# Before the browser: its event loop counts as running in this thread.
@pytest.fixture(scope="session")
def secure() -> Iterator[Broker]:
    rules = [allow(USER, "Read", "Topic:orders")]
    with Broker(users={USER: PASSWORD}, rules=rules) as broker:
        for name in ("orders", "secrets"):
            broker.create_topic(name)
        yield broker


@pytest.fixture(scope="module")
def console(secure: Broker) -> Iterator[RunningConsole]:
    keys = {name: text for name, text in secure.settings().java().items() if "sasl." not in name}
    with RunningConsole(secure.bootstrap_servers, properties=keys) as console:
        yield console


def log_in(tab: Tab, password: str = PASSWORD) -> None:
    """Fill the form by keyboard alone."""
    tab.page.get_by_label("User name").focus()
    tab.page.keyboard.press("Control+A")
    tab.page.keyboard.type(USER)
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.type(password)
    tab.page.keyboard.press("Enter")


def test_login_leads_to_the_page_and_to_what_the_user_may_see(new_tab: NewTab) -> None:
    tab = new_tab()
    tab.open("/topics?q=e")
    assert tab.page.url.endswith("/login?next=%2Ftopics%3Fq%3De")
    assert tab.findings() == []
    log_in(tab)
    tab.page.wait_for_url("**/topics?q=e")
    main = tab.page.locator("main")
    expect(main).to_contain_text("orders")
    expect(main).not_to_contain_text("secrets")
    expect(tab.page.locator("header")).to_contain_text(USER)
    tab.hold_still()
    tab.open("/topics")
    assert tab.findings() == []
    assert tab.page.evaluate("document.cookie") == ""
    tab.page.get_by_role("button", name="Log out").click()
    tab.page.wait_for_url("**/login")
    tab.page.go_back()
    expect(tab.page.locator("body")).not_to_contain_text("orders")


def test_wrong_password_is_said_and_not_kept(new_tab: NewTab) -> None:
    tab = new_tab()
    tab.open("/login")
    log_in(tab, "wrong")
    alert = tab.page.get_by_role("alert")
    expect(alert).to_have_text("The brokers refuse this user name or this password.")
    assert tab.findings() == []
    assert tab.page.get_by_label("User name").input_value() == USER
    assert tab.page.get_by_label("Password").input_value() == ""
    assert "wrong" not in tab.page.url
    log_in(tab)
    tab.page.wait_for_url("**/")


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_login_fits_a_narrow_screen_without_scripts(new_tab: NewTab, scheme: str) -> None:
    tab = new_tab(viewport=NARROW, color_scheme=scheme, java_script_enabled=False)
    tab.open("/")
    log_in(tab)
    tab.page.wait_for_url("**/")
    assert tab.page.locator("h1:visible").inner_text() == "Overview"


def test_pages_with_a_long_user_fit_a_narrow_screen(new_tab: NewTab) -> None:
    tab = new_tab(viewport=NARROW)
    tab.hold_still()
    tab.open("/")
    assert tab.too_wide() == []
    log_in(tab)
    tab.page.wait_for_url("**/")
    assert tab.too_wide() == []
    assert tab.findings() == []


def test_open_page_says_that_the_login_has_ended(
    new_tab: NewTab, monkeypatch: pytest.MonkeyPatch
) -> None:
    tab = new_tab()
    tab.open("/topics")
    log_in(tab)
    main = tab.page.locator("main")
    expect(main).to_contain_text("orders")
    monkeypatch.setattr(sessions, "IDLE_S", 0.0)
    expect(main).to_contain_text("Your login has ended", timeout=30_000)
    expect(main).not_to_contain_text("orders")
