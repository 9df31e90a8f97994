"""The jobs of docs/jobs.md, by the clicks and the commands of its table, and pictures of them."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from playwright.sync_api import Locator, Page, expect

from barnabas.client.admin import Admin
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.producer import Producer
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker, allow
from tests.console.browser import Tab
from tests.console.conftest import NewTab
from tests.console.scene import LONG, Scene
from tests.support.command_line import ROOT, run_in_shell
from tests.support.levers import BrokersWithLevers
from tests.support.running_console import RunningConsole

IN_TIME_MS: Final = 60_000
TOPIC, GROUP, TRANSACTION, KEPT = "clicks", "readers", "payments", "billing"
PLACE, OTHER = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
SECURED: Final = frozenset(
    (
        "Find out why a request was denied",
        "Add a user",
        "Allow a user to read a topic",
        "Limit what a user may write",
    )
)
"""The jobs at brokers with users."""
TIMED_OUT: Final = 124
EXIT_CODES: Final = {
    "barnabas consume clicks": TIMED_OUT,
    "barnabas topics describe --under-replicated": 3,
}
"""The exit codes other than 0: one command has no end, and `timeout` ends it."""
OUTAGE: Final = "Find partitions that lack replicas"
ARRIVES: Final = "Follow the end of a topic"
KEEPS: Final = "End a transaction of two-phase commit"
PICTURE: Final = {"width": 1000, "height": 540}
MOST_BYTES: Final = 120_000
"""The size of a picture: those who clone the repository have them all."""


class Job(NamedTuple):
    """A row of the table."""

    title: str
    clicks: list[str]
    number: int
    commands: list[str]
    says: str


def jobs() -> list[Job]:
    page = (ROOT / "docs" / "jobs.md").read_text().partition("\n## In a browser")[2]
    cell = r"([^|]+?)"
    rows = re.findall(rf"^\| {cell} \| {cell} \| (\d+) \| {cell} \| {cell} \|$", page, re.M)
    assert len(rows) == page.count("\n| ") - 1 >= 10
    return [
        Job(title, clicks.split(", "), int(number), re.findall(r"`([^`]+)`", commands), says)
        for title, clicks, number, commands, says in rows
    ]


class Shop:
    """A topic with records, a group that lags behind, and an open transaction."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        scene.run(self._begin())

    async def _begin(self) -> None:
        client = self._scene.client
        admin = Admin(client)
        await admin.create_topic(TOPIC, partitions=2, replication_factor=3)
        change = [("retention.ms", ConfigOperation.SET, "3600000")]
        await admin.alter_configs(ConfigResourceType.TOPIC, TOPIC, change)
        async with Producer(client) as producer:
            for key, partition in ((b"alice", 0), (b"bob", 0), (b"carol", 0), (b"erin", 1)):
                await producer.send(TOPIC, b'{"page": "/home"}', key=key, partition=partition)
        await GroupAdmin(client).set_offsets(GROUP, {PLACE: 1, OTHER: 1})
        self.open = TransactionalProducer(client, TRANSACTION, transaction_timeout=600.0)
        await self.open.init_transactions()
        await self.open.begin_transaction()
        await (await self.open.send(TOPIC, b'{"page": "/pay"}', key=b"dave", partition=0))
        await admin.create_topic(f"of-{KEPT}", partitions=1, replication_factor=3)

    def arrive(self) -> None:
        """Append a record where no transaction is open."""

        async def send() -> None:
            async with Producer(self._scene.client) as producer:
                await producer.send(TOPIC, b"just arrived", partition=1)

        self._scene.run(send())

    def keep(self) -> None:
        """Prepare a transaction of two-phase commit, whose producer does not come back."""

        async def prepare() -> None:
            producer = TransactionalProducer(self._scene.client, KEPT, two_phase=True)
            await producer.init_transactions()
            await producer.begin_transaction()
            await (await producer.send(f"of-{KEPT}", b"12 Euro"))
            await producer.prepare_transaction()

        self._scene.run(prepare())

    def leader(self) -> int:
        """Return the leader of a partition, if possible not that of the one with a long name."""

        async def ask() -> int:
            client = self._scene.client
            await client.refresh()
            other = await client.leader(LONG, 0)
            leaders = [await client.leader(*each) for each in (PLACE, OTHER)]
            return next((each for each in leaders if each != other), other)

        return self._scene.run(ask())


@pytest.fixture(scope="module")
def shop(scene: Scene) -> Shop:
    return Shop(scene)


class Secured(NamedTuple):
    """A console of a broker with users, and the settings of its administrator in a file."""

    console: RunningConsole
    servers: str
    settings: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    broker = Broker(users=["alice"], rules=[allow("alice", "Read", f"Topic:{TOPIC}")])
    # The loop of Playwright runs in this thread, and a start must not block it.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(broker.start).result()
        settings = broker.settings().java()
        file = tmp_path_factory.mktemp("secured") / "admin.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        with RunningConsole(
            broker.bootstrap_servers, properties=settings, allow_changes=True
        ) as console:
            yield Secured(console, broker.bootstrap_servers, file)
        pool.submit(broker.stop).result()


def test_pictures_of_pages(
    new_tab: NewTab, shop: Shop, console: RunningConsole, pictures: Path | None
) -> None:
    tab = new_tab(viewport=PICTURE, color_scheme="light", reduced_motion="reduce")

    def draw(name: str, path: str, text: str, first: str = "header") -> None:
        tab.open(path)
        expect(tab.page.locator("main")).to_contain_text(text, timeout=IN_TIME_MS)
        top = tab.page.locator(first).bounding_box()
        assert top is not None
        drawn = tab.page.screenshot(full_page=True, clip={"x": 0, "y": top["y"], **PICTURE})
        assert 10_000 < len(drawn) < MOST_BYTES
        if pictures is not None:
            (pictures / f"console-{name}.png").write_bytes(drawn)

    draw("topic", f"/topic?name={TOPIC}", f"{GROUP} at 1, lag 3", "h2")
    draw("transaction", f"/transaction?id={TRANSACTION}", GROUP)
    killed = shop.leader()
    console.carry_out(f"/lever?do=kill&broker={killed}")
    draw("overview", "/", f"not in sync: broker {killed}")
    console.carry_out(f"/lever?do=start&broker={killed}")
    draw("timeline", "/timeline", "last_run killed", "text=the latest first")


# Each command is a process.
@pytest.mark.timeout(400)
def test_each_job_is_done_by_its_clicks_and_by_its_commands(
    secured: Secured,
    shop: Shop,
    brokers: BrokersWithLevers,
    console: RunningConsole,
    browser,
    tmp_path: Path,
) -> None:
    killed = None
    (tmp_path / "bob.password").write_text("of bob")
    assert {job.title for job in jobs()} >= SECURED
    for job in jobs():
        if job.title == OUTAGE:
            killed = shop.leader()
            console.carry_out(f"/lever?do=kill&broker={killed}")
        if job.title == KEEPS:
            shop.keep()
        at = secured.console if job.title in SECURED else console
        tab = Tab(browser, at.url)
        tab.open("/")
        for click in job.clicks:
            do(tab.page, click)
        if job.title == ARRIVES:
            shop.arrive()
        expect(tab.page.locator("main")).to_contain_text(job.says, timeout=IN_TIME_MS)
        assert job.number == sum(" = " not in each for each in job.clicks), job.title
        tab.require_quiet()
        tab.close()
        if job.title == KEEPS:
            shop.keep()
        for command in job.commands:
            if job.title in SECURED:
                known = f"{command} --command-config {secured.settings}"
                run_in_shell(known, secured.servers, tmp_path)
                continue
            code = EXIT_CODES.get(command, 0)
            bounded = f"timeout 3 {command}" if code == TIMED_OUT else command
            run_in_shell(f"{bounded} || [ $? = {code} ]", brokers.servers, tmp_path)
    assert killed is not None
    console.carry_out(f"/lever?do=start&broker={killed}")


def do(page: Page, click: str) -> None:
    """Follow a link, press a button, or fill in a field."""
    field, is_field, text = click.partition(" = ")
    if is_field:
        label = page.locator("main label", has_text=re.compile(rf"^\s*{re.escape(field)}"))
        _fill(label.locator("input, select"), text)
    elif click.startswith("["):
        page.get_by_role("button", name=click[1:-1], exact=True).click()
    else:
        page.get_by_role("link", name=click, exact=True).first.click()


def _fill(field: Locator, text: str) -> None:
    if text == "on":
        field.check()
    elif field.evaluate("each => each.tagName") == "SELECT":
        field.select_option(text)
    else:
        field.fill(text)
