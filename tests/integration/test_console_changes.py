"""Changes by the console: what is shown, what is confirmed, and what is refused."""

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer
from barnabas.client.group import GroupMember
from barnabas.client.group_admin import GroupAdmin
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker
from tests.support.newer_producer import NewerProducer
from tests.support.running_console import Answered, RunningConsole, confirmation
from tests.support.transactions_by_hand import committed_values, hanging, lose_marker
from tests.support.waiting import until

FIRST: Final = TopicPartition("orders", 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    # Records of the older protocol are appended unverified: a transaction can hang.
    with Broker({"transaction.partition.verification.enable": "false"}) as broker:
        broker.create_topic("orders", partitions=2)
        broker.produce("orders", *map(str, range(10)), partition=0)
        broker.produce("orders", *map(str, range(10)), partition=1)
        yield broker


@pytest.fixture(scope="module")
def console(broker: Broker) -> Iterator[RunningConsole]:
    with RunningConsole(broker.bootstrap_servers, allow_changes=True) as console:
        yield console


@pytest.fixture
def group(broker: Broker) -> str:
    name = f"readers <b>&{uuid.uuid4().hex}"
    commit(broker, name, {FIRST: 4, TopicPartition("orders", 1): 10})
    return name


def commit(broker: Broker, group: str, wanted: dict[TopicPartition, int]) -> None:
    async def work() -> None:
        async with Cluster(broker.bootstrap_servers) as cluster:
            await GroupAdmin(cluster).set_offsets(group, wanted)

    asyncio.run(work())


def offsets(broker: Broker, group: str) -> list[int]:
    async def work() -> dict[TopicPartition, int]:
        async with Cluster(broker.bootstrap_servers) as cluster:
            return await GroupAdmin(cluster).offsets(group)

    return [offset for _, offset in sorted(asyncio.run(work()).items())]


def reset(group: str, **parameters: object) -> str:
    return f"/group/reset?{urlencode({'id': group, **parameters})}"


def test_reset_shows_before_and_after_and_does_exactly_that(
    broker: Broker, console: RunningConsole, group: str
) -> None:
    (link,) = [each for each in console.get("/group", id=group).links if "reset" in each]
    assert "Offset before" not in console.request(link).words
    shown = console.request(reset(group, way="to_offset", value=7, topic="orders"))
    assert f"Group {group} will go on at other offsets in 2 partition(s)" in shown.words
    assert "orders-0 4 7 +3 orders-1 10 7 -3" in shown.words
    assert offsets(broker, group) == [4, 10]
    done = send(console, shown)
    assert "were reset in 2 partition(s)" in done.words
    assert offsets(broker, group) == [7, 7]
    assert "orders-0 7 10 3" in console.get("/group", id=group).words


@pytest.mark.parametrize(
    ("parameters", "after"),
    [
        ({"way": "to_earliest"}, [0, 0]),
        ({"way": "to_latest"}, [10, 10]),
        ({"way": "shift_by", "value": -2}, [2, 8]),
        ({"way": "to_time", "value": "-1h"}, [0, 0]),
        ({"way": "to_offset", "value": 1, "topic": "orders", "partition": 1}, [4, 1]),
        ({"way": "to_offset", "value": 99}, [10, 10]),
    ],
)
def test_ways_to_reset(
    broker: Broker,
    console: RunningConsole,
    group: str,
    parameters: dict[str, object],
    after: list[int],
) -> None:
    assert send(console, console.request(reset(group, **parameters))).status == 200
    assert offsets(broker, group) == after


def send(console: RunningConsole, shown: Answered, **changed: str) -> Answered:
    """Confirm a change; `changed` are fields of the form that an attacker has changed."""
    assert shown.status == 200, shown.words
    address, fields = confirmation(shown)
    return console.post(address, **{**fields, **changed})


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"way": "to_offset"}, "nothing is not a number of offsets"),
        ({"way": "to_offset", "value": "-1"}, "-1 is not a number of offsets"),
        ({"way": "to_time", "value": "soon"}, "soon is not a date or time"),
        ({"way": "to_file"}, "to_file is no way"),
        ({"way": "shift_by", "value": "0"}, "there is nothing to reset"),
        ({"way": "to_latest", "partition": "1"}, "a partition needs its topic"),
        ({"way": "to_latest", "topic": "orders", "partition": "x"}, "x is no partition"),
    ],
)
def test_reset_that_is_wrong_says_why(
    console: RunningConsole, group: str, parameters: dict[str, object], why: str
) -> None:
    answered = console.request(reset(group, **parameters))
    assert answered.status == 400
    assert why in answered.words


def test_group_with_members_is_not_reset(broker: Broker, console: RunningConsole) -> None:
    async def work() -> Answered:
        async with Cluster(broker.bootstrap_servers) as cluster:
            consumer = Consumer(cluster)
            async with GroupMember(cluster, consumer, "busy", ["orders"]) as member:
                await member.ensure_joined()
                await member.commit()
                address = reset("busy", way="to_latest", topic="orders")
                return await asyncio.to_thread(console.request, address)

    answered = asyncio.run(work())
    assert answered.status == 400
    assert "the group has 1 member(s)" in answered.words


def test_changing_request_without_its_token_is_refused(
    broker: Broker, console: RunningConsole, group: str
) -> None:
    shown = console.request(reset(group, way="to_earliest"))
    address, fields = confirmation(shown)
    for name in fields:
        without = {each: text for each, text in fields.items() if each != name}
        assert console.post(address, **without).status == 403
        assert console.post(address, **{**fields, name: ""}).status == 403
    assert console.post(address).status == 403
    other = confirmation(console.request(reset(group, way="to_latest")))[1]["token"]
    assert console.post(address, **{**fields, "token": other}).status == 403
    forged = fields["facts"].replace("4, 0]", "4, 3]")
    assert forged != fields["facts"]
    assert console.post(address, **{**fields, "facts": forged}).status == 403
    # The token is for the group that the person has seen.
    assert console.post(reset("another", way="to_earliest"), **fields).status == 403
    assert offsets(broker, group) == [4, 10]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://other.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "other.example"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "multipart/form-data; boundary=x"},
    ],
)
def test_form_of_another_site_is_refused(
    broker: Broker, console: RunningConsole, group: str, headers: dict[str, str]
) -> None:
    address, fields = confirmation(console.request(reset(group, way="to_earliest")))
    assert console.post(address, headers, **fields).status in (403, 415, 421)
    assert offsets(broker, group) == [4, 10]


def test_confirmation_counts_once(broker: Broker, console: RunningConsole, group: str) -> None:
    address, fields = confirmation(console.request(reset(group, way="to_earliest")))
    assert console.post(address, **fields).status == 200
    commit(broker, group, {FIRST: 4, TopicPartition("orders", 1): 10})
    assert console.post(address, **fields).status == 409
    assert offsets(broker, group) == [4, 10]


def test_group_that_went_on_meanwhile_is_left_alone(
    broker: Broker, console: RunningConsole, group: str
) -> None:
    shown = console.request(reset(group, way="to_earliest"))
    commit(broker, group, {FIRST: 5})
    answered = send(console, shown)
    assert answered.status == 409
    assert "The cluster has changed since" in answered.words
    assert offsets(broker, group) == [5, 10]


def test_form_that_is_too_large_is_refused(console: RunningConsole) -> None:
    answered = console.post(reset("any", way="to_earliest"), facts="x" * 3_000_000)
    assert answered.status == 413


def test_console_that_may_change_nothing_has_no_such_pages(broker: Broker) -> None:
    with RunningConsole(broker.bootstrap_servers) as console:
        for path in ("/group/reset", "/transaction/fence", "/transaction/abort"):
            assert console.request(f"{path}?id=x").status == 404
            assert console.post(f"{path}?id=x", facts="", issued="", token="").status == 405


def test_producer_is_fenced_after_a_dry_run(broker: Broker, console: RunningConsole) -> None:
    id = f"txn <i>{uuid.uuid4().hex}"
    producer = NewerProducer(broker.bootstrap_servers, id).init()
    producer.send("orders", 0, b"open")
    (link,) = [each for each in console.get("/transaction", id=id).links if "fence" in each]
    shown = console.request(link)
    assert "will be fenced" in shown.words
    assert "its open transaction in 1 partition(s) will be aborted" in shown.words
    assert state(broker, id) == "Ongoing"
    assert f"{id} was fenced: producer id" in send(console, shown).words
    # Its transaction was aborted, and the next producer of the id begins.
    assert state(broker, id) == "Empty"


def state(broker: Broker, id: str) -> str:
    async def work() -> str:
        async with Cluster(broker.bootstrap_servers) as cluster:
            return (await TransactionAdmin(cluster).describe(id)).transaction_state

    return asyncio.run(work())


def test_producer_that_has_begun_another_transaction_is_not_fenced(
    broker: Broker, console: RunningConsole
) -> None:
    id = uuid.uuid4().hex
    producer = NewerProducer(broker.bootstrap_servers, id).init()
    producer.send("orders", 0, b"first")
    shown = console.get("/transaction/fence", id=id)
    producer.end(committed=True)
    assert send(console, shown).status == 409


def test_hanging_transaction_is_aborted_and_an_open_one_is_not(
    broker: Broker, console: RunningConsole
) -> None:
    topic = broker.create_topic()
    start = hanging(broker.bootstrap_servers, topic, committed_before=False)
    page = console.get("/topic", name=topic)
    (link,) = [each for each in page.links if "/transaction/abort" in each]
    shown = console.request(link)
    assert f"its records from offset {start} on are not given" in shown.words
    assert "was aborted" in send(console, shown).words
    assert committed_values(broker.bootstrap_servers, topic) == []
    assert "hold back" not in console.get("/topic", name=topic).words
    assert console.request(link).status == 400

    producer = NewerProducer(broker.bootstrap_servers, uuid.uuid4().hex).init()
    producer.send(topic, 0, b"open")
    place = {"topic": topic, "partition": 0, "start": 2}
    refused = console.request(f"/transaction/abort?{urlencode(place)}")
    assert refused.status == 400
    assert "its coordinator has it open" in refused.words
    producer.end(committed=True)


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_transaction_of_two_phase_commit_is_not_fenced_and_ended_as_it_was_decided(
    outcome: str,
) -> None:
    keys = {"transaction.two.phase.commit.enable": "true"}
    with (
        Broker(keys) as broker,
        RunningConsole(broker.bootstrap_servers, allow_changes=True) as console,
    ):
        topic = broker.create_topic()

        async def begin() -> None:
            async with Cluster(broker.bootstrap_servers) as cluster:
                producer = TransactionalProducer(cluster, "kept", two_phase=True)
                await producer.init_transactions()
                await producer.begin_transaction()
                await (await producer.send(topic, b"prepared"))
                await producer.prepare_transaction()

        asyncio.run(begin())
        answered = console.request("/transaction/fence?id=kept")
        assert answered.status == 400
        assert "open without a timeout for two-phase commit" in answered.words
        (link,) = [each for each in console.get("/transaction", id="kept").links if "/end" in each]
        assert 'method="post"' not in console.request(link).text
        shown = console.request(f"{link}&outcome={outcome}")
        done = "committed" if outcome == "commit" else "aborted"
        assert f"will be {done} in 1 partition(s), for good" in shown.words
        assert state(broker, "kept") == "Ongoing"
        assert f"The transaction of kept was {done}" in send(console, shown).words
        values = [b"prepared"] if outcome == "commit" else []
        assert committed_values(broker.bootstrap_servers, topic) == values
        again = console.request(f"{link}&outcome={outcome}")
        assert again.status == 400
        assert "has no open transaction of two-phase commit" in again.words


@pytest.mark.parametrize("committed", [True, False])
def test_lost_marker_is_written_again_as_the_log_has_decided(
    tmp_path: Path, committed: bool
) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t")
        producer = NewerProducer(broker.bootstrap_servers, "x").init()
        producer.send("t", 0, b"a")
        producer.end(committed=committed)
        until(lambda: state(broker, "x").startswith("Complete"))
    lose_marker(tmp_path)
    with (
        Broker(data_dir=tmp_path) as broker,
        RunningConsole(broker.bootstrap_servers, allow_changes=True) as console,
    ):
        assert "/topic/repair?topic=t" in console.get("/topic", name="t").links
        shown = console.request("/topic/repair?topic=t")
        assert "1 marker(s) that were lost will be written into t again" in shown.words
        assert ("committed" if committed else "aborted") in shown.words
        assert committed_values(broker.bootstrap_servers, "t") == []
        assert "1 marker(s) were written into t" in send(console, shown).words
        assert committed_values(broker.bootstrap_servers, "t") == ([b"a"] if committed else [])
        answered = console.request("/topic/repair?topic=t")
        assert answered.status == 400
        assert "no marker of t is missing" in answered.words
