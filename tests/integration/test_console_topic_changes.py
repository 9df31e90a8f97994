"""Changes of topics and groups by the console: each is shown first, and done as it was shown."""

import asyncio
import html
import re
import uuid
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.group_admin import GroupAdmin
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker
from tests.support.running_console import Answered, RunningConsole, confirmation

CODE: Final = "<script>alert(1)</script>\"'&{{ 7*7 }}"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def console(broker: Broker) -> Iterator[RunningConsole]:
    with RunningConsole(broker.bootstrap_servers, allow_changes=True) as console:
        yield console


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(partitions=2)


def ask(console: RunningConsole, path: str, **parameters: object) -> Answered:
    return console.request(f"{path}?{urlencode(parameters)}")


def confirm(console: RunningConsole, shown: Answered) -> Answered:
    assert shown.status == 200, shown.words
    assert shown.code == []
    address, fields = confirmation(shown)
    return console.post(address, **fields)


def partitions(broker: Broker, topic: str) -> int:
    async def work() -> int:
        async with Cluster(broker.bootstrap_servers) as cluster:
            await cluster.refresh()
            return len(cluster.topics[topic].leaders) if topic in cluster.topics else 0

    return asyncio.run(work())


def retention(broker: Broker, topic: str) -> str | None:
    async def work() -> str | None:
        async with Cluster(broker.bootstrap_servers) as cluster:
            found = await Admin(cluster).topic_configs([topic], ["retention.ms"])
            return found[topic][0].value

    return asyncio.run(work())


def test_topic_is_created_after_a_dry_run(broker: Broker, console: RunningConsole) -> None:
    assert "/topic/create" in console.get("/topics").links
    name = f"new-{uuid.uuid4().hex[:8]}"
    wanted = {
        "name": name,
        "partitions": 3,
        "configs": "retention.ms=7d\r\n\r\ncleanup.policy=delete",
    }
    shown = ask(console, "/topic/create", **wanted)
    assert "Partitions 3 Replicas 1 retention.ms 604800000 cleanup.policy delete" in shown.words
    assert partitions(broker, name) == 0
    assert f"{name} was created with 3 partition(s)" in confirm(console, shown).words
    assert (partitions(broker, name), retention(broker, name)) == (3, "604800000")
    # It is there at once.
    assert "Partitions 3" in console.get("/topic", name=name).words
    again = ask(console, "/topic/create", **wanted)
    assert "TOPIC_ALREADY_EXISTS" in again.words


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"name": "a b"}, "INVALID_TOPIC_EXCEPTION"),
        ({"name": CODE}, "INVALID_TOPIC_EXCEPTION"),
        ({"name": "x", "partitions": "many"}, "partitions must be a whole number"),
        ({"name": "x", "partitions": 0}, "partitions must be between 1 and"),
        ({"name": "x", "replicas": 2}, "INVALID_REPLICATION_FACTOR"),
        ({"name": "x", "configs": "retention.ms"}, "is not NAME=VALUE"),
        ({"name": "x", "configs": "retention.ms=7 days"}, "INVALID_CONFIG"),
        ({"name": "x", "configs": "no.such.key=1"}, "INVALID_CONFIG"),
    ],
)
def test_topic_that_cannot_be_created_says_why(
    broker: Broker, console: RunningConsole, wanted: dict[str, Any], why: str
) -> None:
    shown = ask(console, "/topic/create", **wanted)
    assert shown.status >= 400
    assert why in shown.words
    assert shown.code == []
    # The form still has what was typed.
    fields = dict(re.findall(r'<input name="(\w+)" value="([^"]*)"', shown.text))
    assert html.unescape(fields["name"]) == wanted["name"]
    assert partitions(broker, str(wanted["name"])) == 0


def test_topic_is_deleted_unless_it_is_another_one_by_now(
    broker: Broker, console: RunningConsole, topic: str
) -> None:
    shown = ask(console, "/topic/delete", name=topic)
    assert f"The topic {topic} and all records in it will be deleted" in shown.words

    async def replace() -> None:
        async with Cluster(broker.bootstrap_servers) as cluster:
            await Admin(cluster).delete_topic(topic)
            await Admin(cluster).create_topic(topic, partitions=2)

    asyncio.run(replace())
    assert "The cluster has changed since" in confirm(console, shown).words
    assert partitions(broker, topic) == 2
    shown = ask(console, "/topic/delete", name=topic)
    assert f"{topic} was deleted" in confirm(console, shown).words
    assert partitions(broker, topic) == 0
    assert console.request(f"/topic?name={topic}").status == 404


def test_partitions_are_added(broker: Broker, console: RunningConsole, topic: str) -> None:
    shown = ask(console, "/topic/partitions", name=topic, count=5)
    assert f"{topic} will have 5 partitions in place of 2" in shown.words
    assert partitions(broker, topic) == 2
    late = ask(console, "/topic/partitions", name=topic, count=6)
    assert f"{topic} has 5 partitions" in confirm(console, shown).words
    assert partitions(broker, topic) == 5
    assert confirm(console, late).status == 409
    fewer = ask(console, "/topic/partitions", name=topic, count=1)
    assert "INVALID_PARTITIONS" in fewer.words
    assert partitions(broker, topic) == 5


def test_configuration_is_set_and_reset(
    broker: Broker, console: RunningConsole, topic: str
) -> None:
    before = retention(broker, topic)
    change = {"name": topic, "key": "retention.ms"}
    shown = ask(console, "/topic/config", **change, value="1d")
    assert f"retention.ms {before}" in shown.words
    assert "86400000" in shown.words
    assert retention(broker, topic) == before
    late = ask(console, "/topic/config", **change, value="2d")
    assert "was changed" in confirm(console, shown).words
    assert retention(broker, topic) == "86400000"
    assert confirm(console, late).status == 409
    shown = ask(console, "/topic/config", **change, way="delete")
    assert "the default" in shown.words
    confirm(console, shown)
    assert retention(broker, topic) == before


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"key": CODE, "value": "1"}, "topics have no key"),
        ({"key": "retention.ms", "value": "soon"}, "INVALID_CONFIG"),
        ({"key": "retention.ms", "value": "1GB"}, "1GB is not a duration"),
        ({"key": "retention.ms", "way": "fly"}, "fly is no way"),
    ],
)
def test_configuration_that_is_wrong_says_why(
    console: RunningConsole, topic: str, wanted: dict[str, str], why: str
) -> None:
    shown = ask(console, "/topic/config", name=topic, **wanted)
    assert shown.status >= 400
    assert why in shown.words
    assert shown.code == []


def test_record_is_written_once_as_it_was_shown(
    broker: Broker, console: RunningConsole, topic: str
) -> None:
    wanted = {
        "name": topic,
        "partition": 1,
        "key": f"key {CODE}",
        "what": "text",
        "value": f"two\r\nlines {CODE}",
        "headers": f"one={CODE}\r\ntwo=2",
    }
    shown = ask(console, "/topic/produce", **wanted)
    assert f"Key key {CODE}" in shown.words
    assert broker.records(topic) == []
    done = confirm(console, shown)
    assert f"The record is at offset 0 of {topic}-1" in done.words
    address, fields = confirmation(shown)
    assert console.post(address, **fields).status == 409
    (record,) = broker.records(topic, 1)
    assert (record.key, record.value) == (f"key {CODE}".encode(), f"two\nlines {CODE}".encode())
    assert [*record.headers] == [("one", CODE.encode()), ("two", b"2")]
    (link,) = [each for each in done.links if each.startswith("/records?")]
    assert "two lines" in console.request(link).words


def test_tombstone_is_written(broker: Broker, console: RunningConsole, topic: str) -> None:
    shown = ask(console, "/topic/produce", name=topic, key="k", what="null", value="ignored")
    confirm(console, shown)
    (record,) = broker.records(topic, 1)
    assert (record.key, record.value) == (b"k", None)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"what": "text", "partition": 7}, "has no partition 7"),
        ({"what": "else"}, "else is no value"),
        ({"what": "text", "headers": "x"}, "is not NAME=VALUE"),
    ],
)
def test_record_that_is_wrong_says_why(
    console: RunningConsole, topic: str, wanted: dict[str, object], why: str
) -> None:
    shown = ask(console, "/topic/produce", name=topic, **wanted)
    assert shown.status == 400
    assert why in shown.words


def test_group_is_deleted_with_its_offsets(broker: Broker, console: RunningConsole) -> None:
    topic, group = broker.create_topic(), f"readers {CODE}"

    async def commit(offset: int) -> None:
        async with Cluster(broker.bootstrap_servers) as cluster:
            await GroupAdmin(cluster).set_offsets(group, {TopicPartition(topic, 0): offset})

    asyncio.run(commit(0))
    shown = ask(console, "/group/delete", id=group)
    assert f"Group {group} will be deleted with its offsets in 1 partition(s)" in shown.words
    asyncio.run(commit(1))
    assert confirm(console, shown).status == 409
    done = confirm(console, ask(console, "/group/delete", id=group))
    assert f"Group {group} was deleted" in done.words
    assert group not in console.get("/groups").words
    assert ask(console, "/group/delete", id="no such group").status in (400, 404)


def test_console_that_may_change_nothing_has_no_such_pages(broker: Broker, topic: str) -> None:
    with RunningConsole(broker.bootstrap_servers) as console:
        for what in ("create", "delete", "partitions", "config", "produce", "repair"):
            assert console.request(f"/topic/{what}?name={topic}").status == 404
        assert not any("/topic/" in each for each in console.get("/topic", name=topic).links)
        assert console.request("/transaction/end?id=x&outcome=commit").status == 404
