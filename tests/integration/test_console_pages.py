"""The pages of the console about a real broker, with names that would like to be code."""

import asyncio
import html
import re
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from time import sleep, time_ns
from typing import Any, Final

import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster as Client
from barnabas.client.consumer import Consumer
from barnabas.client.group import GroupMember
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.partition_admin import PartitionAdmin
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.console import lags, records
from barnabas.protocol.config_resources import ConfigOperation, ConfigResourceType
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker, Cluster
from tests.support.running_console import RunningConsole
from tests.support.waiting import until

CODE: Final = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}{% raw %}"
GROUP: Final = f"readers {CODE}"
MEMBERS: Final = f"members {CODE}"
TURNED: Final = "abc\u202egnp.exe\n\x1b[31m"
TRANSACTION: Final = f"txn {CODE}"


class Held:
    """An open transaction and a member of a group, kept alive in a thread of their own."""

    def __init__(self, servers: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._run(self._begin(servers))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        future: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.result(60)

    async def _begin(self, servers: str) -> None:
        self.client = Client(servers, client_id=f"client {CODE}")
        await self.client.refresh()
        await GroupAdmin(self.client).set_offsets(GROUP, {TopicPartition("orders", 0): 2})
        await GroupAdmin(self.client).set_offsets(TURNED, {TopicPartition("orders", 0): 1})
        aborted = TransactionalProducer(self.client, "aborted")
        await aborted.init_transactions()
        await aborted.begin_transaction()
        await (await aborted.send("orders", b"was aborted", partition=1))
        await aborted.abort_transaction()
        self.open = TransactionalProducer(self.client, TRANSACTION)
        await self.open.init_transactions()
        await self.open.begin_transaction()
        await (await self.open.send("orders", b"is open", partition=0))
        self.member = GroupMember(self.client, Consumer(self.client), MEMBERS, ["orders"])
        await self.member.ensure_joined()
        self.newer = GroupMember(
            self.client, Consumer(self.client), "newer", ["people"], protocol="consumer"
        )
        await self.newer.ensure_joined()

    async def _end(self) -> None:
        await self.member.leave()
        await self.newer.leave()
        await self.open.abort_transaction()
        await self.client.close()

    def close(self) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2, configs={"retention.ms": "3600001"})
        for number in range(5):
            broker.produce(
                "orders",
                f"value {number} {CODE}",
                key=f"key {number} {CODE}",
                headers=[(f"header {CODE}", b"its value"), ("token", b"in a header")],
                partition=0,
            )
        broker.produce("orders", b"\xff\x00", None, partition=1)
        broker.create_topic("people")
        broker.produce("people", json={"name": "Ann", "at": [{"email": "ann@example.org"}]})
        broker.produce("people", "email=bob@example.org")
        for number in range(30):
            broker.create_topic(f"many-{number}")
        yield broker


@pytest.fixture(scope="module")
def held(broker: Broker) -> Iterator[Held]:
    held = Held(broker.bootstrap_servers)
    yield held
    held.close()


@pytest.fixture(scope="module")
def console(broker: Broker, held: Held) -> Iterator[RunningConsole]:  # noqa: ARG001
    with RunningConsole(broker.bootstrap_servers) as console:
        yield console


def ready(console: RunningConsole, path: str, text: str, **parameters: object) -> str:
    """Return the words of a page once they have a text: slow parts come later."""
    return until(
        lambda: words if text in (words := console.get(path, **parameters).words) else "",
        lambda: console.get(path, **parameters).words,
    )


def test_every_link_leads_to_a_page_that_has_no_code_of_others(console: RunningConsole) -> None:
    """A person without JavaScript follows links; none may lead to nothing."""
    ready(console, "/topics", "readers", q="orders")
    seen, wanted = set[str](), ["/", "/topics?internal=on", "/records?topic=__consumer_offsets"]
    while wanted:
        address = wanted.pop()
        seen.add(address)
        answered = console.request(address)
        assert answered.status == 200, (address, answered.words)
        assert answered.code == [], address
        assert "\u202e" not in answered.text
        assert "\x1b" not in answered.text
        pages = (link for link in answered.links if link.startswith("/") and "static" not in link)
        wanted += [each for each in {*pages} - seen if not re.search(r"many-\d|page=", each)]
        seen.update(wanted)
    assert "/configs?kind=group&name=newer" in seen
    paths = {each.partition("?")[0] for each in seen}
    assert paths >= {
        "/brokers", "/topics", "/topic", "/configs", "/records", "/groups", "/group",
        "/transactions", "/transaction", "/reassignments",
    }  # fmt: skip


def test_names_are_shown_as_they_are_and_controls_are_visible(console: RunningConsole) -> None:
    assert CODE in console.get("/group", id=GROUP).words
    assert "abc\\u{202e}gnp.exe" in console.get("/groups").words
    assert f"client {CODE}" in ready(console, "/group", "client", id=MEMBERS)
    assert f"key 0 {CODE}" in console.get("/records", topic="orders").words
    assert f"header {CODE}: its value" in console.get("/records", topic="orders").words


def test_form_keeps_what_was_typed(console: RunningConsole) -> None:
    text = console.get("/topics", q=CODE).text
    (kept,) = re.findall(r'name="q" value="([^"]*)"', text)
    assert html.unescape(kept) == CODE


def test_topics_are_found_and_paged(console: RunningConsole) -> None:
    first = console.get("/topics", q="MANY-")
    assert "30 topics" in first.words
    assert "Page 1 of 2" in first.words
    (more,) = [each for each in first.links if "page=2" in each]
    names = set(re.findall(r"many-\d+", first.words + console.request(more).words))
    assert len(names) == 30
    assert "0 topics" in console.get("/topics", q="many-*").words


def test_topic_has_its_groups_with_their_lag_beside_it(console: RunningConsole) -> None:
    # Five records and an open transaction's one in partition 0; the group has read two.
    assert f"{GROUP} 4" in ready(console, "/topics", "readers", q="orders")


def test_partition_is_drawn_with_what_holds_it_back(console: RunningConsole) -> None:
    words = ready(console, "/topic", f"{GROUP} at 2, lag 4", name="orders")
    assert "log start 0 last stable 5 high watermark 6" in words
    assert "open from 5, producer" in words
    assert "are held back by open transactions" in words
    text = console.get("/topic", name="orders").text
    assert 'class="data" x="0" y="8" width="833.33"' in text
    assert 'class="held" x="833.33" y="8" width="166.67"' in text
    assert re.search(r'<line class="group" x1="333.33"[^>]*><title>group readers', text)
    assert re.search(r'<line class="open" x1="833.33"[^>]*><title>open transaction', text)


def test_configuration_has_source_and_meaning(console: RunningConsole) -> None:
    words = console.get("/configs", kind="topic", name="orders").words
    assert "retention.ms 3600001 topic" in words
    assert "cleanup.policy" not in words
    everything = console.get("/configs", kind="topic", name="orders", all="on").words
    assert "cleanup.policy delete default" in everything
    assert console.request("/configs?kind=broker&name=x").status == 400
    assert console.request("/configs?kind=nothing&name=x").status == 400


def test_secret_of_a_broker_is_hidden() -> None:
    with Broker(secure=True) as broker:
        settings = broker.settings().java()
        with RunningConsole(broker.bootstrap_servers, properties=settings) as console:
            words = console.get("/configs", kind="broker", name=0, all="on").words
    assert "ssl.keystore.password (hidden)" in words


def test_group_has_members_partitions_and_what_holds_it_back(console: RunningConsole) -> None:
    words = ready(console, "/group", "Held back", id=GROUP)
    assert "Open transactions hold back 1 record:" in words
    assert f"orders-0 2 6 4 3 1 {TRANSACTION}" in words
    members = ready(console, "/group", "orders:0, orders:1", id=MEMBERS)
    assert "State Stable" in members
    assert "The group has no members." in words
    groups = console.get("/groups").words
    assert f"{GROUP} classic Empty 0 4 3 1" in groups


def test_lags_are_drawn_over_an_hour(
    broker: Broker,
    held: Held,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lags, "PERIOD_S", 0.2)
    with RunningConsole(broker.bootstrap_servers) as console:
        first = console.get("/group", id=GROUP)
        assert "1 sample, one a minute" in first.words
        assert "<polyline" not in first.text
        # The page is closed meanwhile.
        sleep(2)
        later = console.get("/group", id=GROUP)
    samples = int(re.findall(r"(\d+) samples, one", later.words)[0])
    assert samples > 3
    assert "blue: lag, now 4, 4 to 4" in later.words
    assert "orange dots: records held back, now 1, 1 to 1" in later.words
    lines = re.findall(r'<polyline class="line\d" points="([^"]*)"', later.text)
    # The lag is the highest of the three, and 4; 3 records can be read, and 1 is held back.
    heights = [{point.split(",")[1] for point in line.split()} for line in lines]
    assert heights == [{"0.0"}, {"25.0"}, {"75.0"}]
    assert all(len(line.split()) == samples for line in lines)


def test_transactions_say_what_is_held_back_and_by_whom(console: RunningConsole) -> None:
    words = ready(console, "/transactions", "the transaction is open")
    assert f"orders-0 5 6 {TRANSACTION}" in words
    assert "1 id." in words
    assert f"barnabas transactions fence {TRANSACTION}" in words
    every = console.get("/transactions", state="all").words
    assert "aborted CompleteAbort" in every
    assert console.request("/transactions?state=nothing").status == 400
    one = ready(console, "/transaction", "readers", id=TRANSACTION)
    assert "State Ongoing" in one
    assert re.search(rf"orders-0 5 6 1 .*{re.escape(GROUP)}", one)
    assert "InitProducerId" in one


def test_records_are_read_from_an_offset_and_a_time_and_by_key(console: RunningConsole) -> None:
    def offsets(**wanted: object) -> list[tuple[int, int]]:
        text = console.get("/records", topic="orders", **wanted).text.partition("What was read")[0]
        rows = re.findall(r'<td class="number">(\d)</td>\s*<td class="number">(\d+)</td>', text)
        return [(int(partition), int(offset)) for partition, offset in rows]

    committed = [(0, each) for each in range(5)] + [(1, 0), (1, 1)]
    assert offsets() == committed
    # The one in partition 1 was aborted, that in partition 0 is of an open transaction.
    uncommitted = [(0, each) for each in range(6)] + [(1, each) for each in range(3)]
    assert offsets(isolation="uncommitted") == uncommitted
    assert offsets(partition=0, offset=3) == [(0, 3), (0, 4)]
    held = "Open transactions hold back 1 offset, whose records are not here"
    assert held in console.get("/records", topic="orders").words
    assert held in console.get("/tail", topic="orders").words
    assert held not in console.get("/tail", topic="orders", isolation="uncommitted").words
    assert offsets(partition=0, offset=99) == []
    assert offsets(time="-1h") == committed
    assert offsets(time=str(time_ns() // 1_000_000 + 60_000)) == []
    assert offsets(key=f"key 3 {CODE}") == [(0, 3)]
    words = console.get("/records", topic="orders", partition=1).words
    assert "base64: /wA=" in words
    assert "null" in words
    assert "Everything up to the end was read" in words
    for wrong in (
        "offset=x",
        "offset=-1",
        "offset=9223372036854775808",
        "time=soon",
        "offset=%C2%B2",
    ):
        assert console.request(f"/records?topic=orders&{wrong}").status == 400
    for gone in ("partition=2", "partition=99999"):
        assert console.request(f"/records?topic=orders&{gone}").status == 404


def test_page_says_what_was_not_read_and_goes_on(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MOST_SHOWN", 2)
    seen, address = [], "/records?topic=orders&partition=0"
    while True:
        answered = console.request(address)
        seen += re.findall(r"value (\d) ", answered.words)
        following = [each for each in answered.links if "offset=" in each]
        if "Everything up to the end was read" in answered.words:
            break
        assert "Not everything was read" in answered.words
        address = following[0]
    assert seen == ["0", "1", "2", "3", "4"]
    monkeypatch.setattr(records, "MOST_READ", 1)
    words = console.get("/records", topic="orders", partition=0, key="nothing").words
    assert " 0 shown" in words


def test_internal_topic_is_decoded(console: RunningConsole) -> None:
    every = [
        console.get("/records", topic="__consumer_offsets", partition=each).words
        for each in range(5)
    ]
    assert any('"kind": "offset"' in words and '"offset": 2' in words for words in every)


def test_masked_fields_are_hidden_and_so_is_what_is_no_json(broker: Broker, held: Held) -> None:  # noqa: ARG001
    masks = ("EMAIL", "Token")
    with RunningConsole(broker.bootstrap_servers, masks=masks) as console:
        words = console.get("/records", topic="people").words
        assert '{"name": "Ann", "at": [{"email": "(hidden)"}]}' in words
        headers = console.get("/records", topic="orders").words
    assert "example.org" not in words
    assert "token: (hidden)" in headers
    assert "in a header" not in headers
    assert "value 0" not in headers


def test_console_without_records_has_none(broker: Broker, held: Held) -> None:  # noqa: ARG001
    with RunningConsole(broker.bootstrap_servers, show_records=False) as console:
        assert console.request("/records?topic=orders").status == 403
        assert "/records" not in console.get("/topic", name="orders").text


def test_unknown_names_are_not_found(console: RunningConsole) -> None:
    for path in ("/topic?name=none", "/group?id=none", "/transaction?id=none", "/records?topic=no"):
        answered = console.request(path)
        assert answered.status == 404, path
    assert console.request("/topic").status == 400


def test_brokers_that_are_gone_and_reassignments_with_their_progress() -> None:
    async def move(servers: str) -> None:
        async with Client(servers) as client:
            rates = [
                (f"{side}.replication.throttled.rate", ConfigOperation.SET, "1000")
                for side in ("leader", "follower")
            ]
            for broker in client.nodes:
                await Admin(client).alter_configs(ConfigResourceType.BROKER, str(broker), rates)
            throttled = [
                (f"{side}.replication.throttled.replicas", ConfigOperation.SET, "*")
                for side in ("leader", "follower")
            ]
            await Admin(client).alter_configs(ConfigResourceType.TOPIC, "moved", throttled)
            leader = await client.leader("moved", 0)
            (other,) = {*client.nodes} - {leader}
            outcomes = await PartitionAdmin(client).reassign(
                {TopicPartition("moved", 0): [leader, other]}
            )
            assert set(outcomes.values()) == {None}

    with Cluster(brokers=2) as cluster:
        cluster.create_topic("moved", replication_factor=1)
        cluster.produce("moved", *["x" * 100_000] * 40, partition=0)
        cluster.create_topic("both", replication_factor=2)
        asyncio.run(move(cluster.bootstrap_servers))
        with RunningConsole(cluster.bootstrap_servers) as console:
            words = ready(
                console,
                "/reassignments",
                "of 3.8MiB",
            )
            assert re.search(r"moved-0 .* broker \d: .* of 3\.8MiB \d+ %", words)
            assert "Brokers 2" in console.get("/").words
            assert "0 topics" in console.get("/topics", q="both", troubled="on").words
            cluster.stop_broker(1)
            assert "Broker 1 has replicas and is not alive" in ready(
                console, "/brokers", "is not alive"
            )
            ready(console, "/", "broker 1 not alive; replicas of")
            ready(console, "/topics", "1 topic.", q="both", troubled="on")
