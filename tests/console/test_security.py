"""The pages about rules, quotas and users in a real browser, and a password that is set there."""

import asyncio
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.security import connect_with
from barnabas.testing import Broker, allow
from tests.console.browser import require_accessible, require_no_scripts
from tests.console.conftest import NewTab
from tests.console.scene import CODE, OF_SECURITY, USER
from tests.support.running_console import RunningConsole

ALL = pytest.mark.parametrize("path", OF_SECURITY.values(), ids=OF_SECURITY)


# Before the browser: its event loop counts as running in this thread.
@pytest.fixture(scope="session")
def guarded() -> Iterator[Broker]:
    with Broker(users=[USER], rules=[allow(USER, "Read", "Topic:orders")]) as broker:
        settings = broker.settings().java()

        async def limit() -> None:
            connect = connect_with(settings)
            async with Cluster(broker.bootstrap_servers, connect=connect) as cluster:
                await Admin(cluster).alter_client_quotas(
                    {"user": USER}, {"producer_byte_rate": 1024.0}
                )

        asyncio.run(limit())
        yield broker


@pytest.fixture(scope="module")
def console(guarded: Broker) -> Iterator[RunningConsole]:
    settings = guarded.settings().java()
    with RunningConsole(
        guarded.bootstrap_servers, properties=settings, allow_changes=True
    ) as console:
        yield console


@ALL
def test_page_is_accessible_used_by_keyboard_and_fits_a_narrow_screen(
    new_tab: NewTab, path: str
) -> None:
    tab = new_tab(color_scheme="light", reduced_motion="reduce")
    require_accessible(tab, path)
    assert tab.page.locator("[role=alert]").count() == 0


@ALL
def test_page_works_without_scripts(new_tab: NewTab, path: str) -> None:
    require_no_scripts(new_tab(java_script_enabled=False), path)


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_user_is_added_by_clicks(new_tab: NewTab, scripts: bool) -> None:
    tab = new_tab(java_script_enabled=scripts)
    tab.open("/security?show=users")
    page, name = tab.page, f"new {scripts} {CODE}"

    def confirm(password: str, again: str) -> None:
        page.get_by_label("Password", exact=True).fill(password)
        page.get_by_label("The same again").fill(again)
        page.get_by_role("button", name="Set the password").click()

    page.get_by_role("link", name="Add a user").click()
    page.get_by_label("User", exact=True).fill(name)
    page.get_by_role("button", name="Show what would change").click()
    expect(page.locator("main")).to_contain_text(f"The user {name} will be created")
    confirm("secret-1", "secret-2")
    # It stays until it is read: the dry run does not take its place.
    expect(page.get_by_role("alert")).to_contain_text("the two passwords are not the same")
    assert page.locator("#live, #pause:visible").count() == 0
    page.get_by_role("link", name="Show what would change now").click()
    confirm("secret-1", "secret-1")
    expect(page.get_by_role("status")).to_contain_text(f"The password of {name} was set")
    assert "secret-1" not in page.url
    page.get_by_role("link", name="See the result").click()
    expect(page.locator("main")).to_contain_text(name)
