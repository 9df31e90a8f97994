"""`barnabas transactions` lists, explains, fences and aborts open transactions."""

import asyncio
import re
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.transactions.marker_writer import MarkerWrite, MarkerWriter
from barnabas.client.cluster import Cluster
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.operations.transactions import stuck
from barnabas.protocol.errors import ErrorCode
from barnabas.testing import Broker
from tests.support.command_line import DEADLINE, Cli, on_a_terminal
from tests.support.newer_producer import NewerProducer
from tests.support.transactions_by_hand import (
    committed_values,
    hanging,
    refused,
)
from tests.support.waiting import until


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    # Records of the older protocol are appended unverified, which makes hanging transactions
    # possible.
    keys = {
        "transaction.partition.verification.enable": "false",
        "transaction.state.log.num.partitions": "3",
    }
    with Broker(keys) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(cli: Cli) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    cli("topics", "create", name, "-p", "2")
    return name


def opened(servers: str, topic: str, *partitions: int) -> tuple[str, NewerProducer]:
    """Begin a transaction in the partitions; return its transactional id and its producer."""
    transactional_id = f"x-{uuid.uuid4().hex[:8]}"
    producer = NewerProducer(servers, transactional_id).init()
    for partition in partitions:
        producer.send(topic, partition, b"open")
    return transactional_id, producer


def test_list_filters_by_state_producer_duration_and_name(
    cli: Cli, servers: str, topic: str
) -> None:
    one, first = opened(servers, topic, 0)
    two, second = opened(servers, topic, 1)
    second.end(committed=True)
    row = {
        "transactional_id": one,
        "coordinator": 0,
        "producer_id": first.producer_id,
        "state": "Ongoing",
    }

    def listed(*filters: str) -> list[Any]:
        rows = cli.json("transactions", "list", *filters)
        return [each for each in rows if each["transactional_id"] in (one, two)]

    until(lambda: [each["state"] for each in listed("--pattern", two)] == ["CompleteCommit"])
    assert len(listed()) == 2
    assert listed("-s", "Ongoing") == [row]
    assert listed("--producer-id", str(first.producer_id)) == [row]
    assert listed("--longer-than", "3600") == []
    assert listed("--pattern", one[:-1] + ".") == [row]
    assert f"{one}\t0\t{first.producer_id}\tOngoing".encode() in cli("transactions", "list")
    assert refused(cli, "list", "-s", "Nonsense") == "barnabas: no state is called Nonsense"
    assert "INVALID_REGULAR_EXPRESSION" in refused(cli, "list", "--pattern", "(")
    first.end(committed=False)


def test_pattern_without_re2_on_the_broker_names_the_extra(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    message = refused(cli, "list", "--pattern", "x")
    assert "UNSUPPORTED_VERSION" in message
    assert "pip install 'barnabas[re2]'" in message


def test_broker_without_re2_announces_no_patterns(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's tools then say that the pattern is the filter that the broker does not take."""
    monkeypatch.setitem(sys.modules, "re2", None)
    with Broker() as broker:
        bare = cli.at(broker.bootstrap_servers)
        assert bare.json("transactions", "list") == []
        message = refused(bare, "list", "--pattern", "x")
    assert "does not support the filter; a Barnabas broker needs google-re2" in message
    assert "pip install 'barnabas[re2]'" in message


def test_describe(cli: Cli, servers: str, topic: str) -> None:
    transactional_id, producer = opened(servers, topic, 0, 1)
    row = cli.json("transactions", "describe", transactional_id)
    assert row["partitions"] == [f"{topic}:0", f"{topic}:1"]
    assert (row["producer_id"], row["epoch"]) == (producer.producer_id, producer.epoch)
    assert (row["state"], row["timeout_ms"]) == ("Ongoing", 60_000)
    assert 0 <= row["age_ms"] < DEADLINE * 1000
    shown = cli("transactions", "describe", transactional_id)
    assert b"\nstate\tOngoing\ntimeout\t60.0 s\nstarted\t20" in shown
    said = refused(cli, "describe", "absent")
    assert said == "barnabas: TRANSACTIONAL_ID_NOT_FOUND: transactional id absent"
    producer.end(committed=False)


def test_why_shows_the_open_transaction_and_its_timeline(
    cli: Cli, servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(*_: object) -> None:
        raise AssertionError("the coordinator has told everything")

    transactional_id, producer = opened(servers, topic, 0)
    producer.end(committed=True)
    producer.send(topic, 0, b"again")
    with monkeypatch.context() as patch:
        patch.setattr(stuck, "histories", unread)
        (found,) = cli.json("transactions", "why", topic)
    timeline = [each["event"] for each in found.pop("timeline")]
    place = f"{topic}-0"
    # The record's timestamp is from another clock, so its place in the timeline varies.
    timeline.remove(f"record 2 of {place} (timestamp of the record)")
    assert 0 <= found.pop("time_left_ms") <= 60_000
    assert 0 <= found.pop("age_ms") < DEADLINE * 1000
    assert found == {
        "topic": topic,
        "partition": 0,
        "last_stable_offset": 2,
        "high_watermark": 3,
        "because": "the transaction is open: its producer has not ended it yet",
        "advice": f"barnabas transactions fence {transactional_id}",
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "transactional_id": transactional_id,
        "coordinator": 0,
        "state": "Ongoing",
        "client": "127.0.0.1",
        "keeper": None,
    }
    assert timeline == [
        "InitProducerId",
        f"begins {place}",
        "EndTxn commits",
        f"marker in {place}",
        "every marker is written",
        f"begins {place}",
    ]
    producer.end(committed=True)


def test_describe_sends_events_only_on_request(servers: str, topic: str) -> None:
    transactional_id, producer = opened(servers, topic, 0)

    async def described(*, include_events: bool) -> tuple[bool, bool, bool]:
        async with Cluster(servers) as cluster:
            row = await TransactionAdmin(cluster).describe(
                transactional_id, include_events=include_events
            )
            return row.events is not None, row.time_left_ms >= 0, row.client_host is not None

    assert asyncio.run(described(include_events=True)) == (True, True, True)
    assert asyncio.run(described(include_events=False)) == (False, False, False)
    producer.end(committed=False)


def test_why_is_empty_without_an_open_transaction(cli: Cli, topic: str) -> None:
    said = cli("transactions", "why", f"{topic}:1")
    text = f"No open transaction holds back read_committed consumers of {topic}:1.\n"
    assert said.decode() == text
    assert cli.json("transactions", "why", topic) == []
    assert "has no partition 7" in refused(cli, "why", f"{topic}:7")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in refused(cli, "why", "no-such-topic")
    code, _, errors = cli.run("transactions", "why", "a:b")
    assert code == 2
    assert b"'a:b' is not TOPIC[:PARTITION]" in errors


def test_consume_to_the_end_names_what_an_open_transaction_holds_back(
    cli: Cli, servers: str, topic: str
) -> None:
    _, producer = opened(servers, topic, 0)
    read = ("consume", topic, "-o", "beginning", "-e")
    code, printed, errors = cli.run(*read)
    assert (code, printed) == (0, b"")
    told = f"Left out: records of {topic} behind an open transaction, which "
    assert errors.decode() == f"{told}`barnabas transactions why {topic}` names.\n"
    assert cli.run(*read, "--read-uncommitted") == (0, b"open\n", b"")
    assert cli.run("consume", topic, "-p", "1", "-o", "beginning", "-e") == (0, b"", b"")
    producer.end(committed=True)
    until(lambda: cli.run(*read) == (0, b"open\n", b""))


def test_why_on_a_terminal(servers: str, topic: str) -> None:
    transactional_id, producer = opened(servers, topic, 0)
    shown = on_a_terminal(servers, "transactions", "why", topic, columns=200)
    assert re.match(rf"{topic}:0 *\r\n", shown)
    assert re.search(rf"transactional id +{transactional_id}", shown)
    assert re.search(r"time left +[0-9.]+ s", shown)
    assert re.search(rf"\d\d:\d\d:\d\d\.\d{{3}}\S* +begins {topic}-0", shown)
    assert f"try: barnabas transactions fence {transactional_id}" in shown
    producer.end(committed=False)


def test_a_fenced_producer_is_aborted(cli: Cli, servers: str, topic: str) -> None:
    transactional_id, producer = opened(servers, topic, 0)
    fenced = cli.json("transactions", "fence", transactional_id)
    assert fenced["producer_id"] == producer.producer_id
    assert fenced["epoch"] > producer.epoch
    assert cli.json("transactions", "why", topic) == []
    assert committed_values(servers, topic) == []
    assert "TRANSACTIONAL_ID_NOT_FOUND" in refused(cli, "fence", "absent")
    assert "TRANSACTIONAL_ID_NOT_FOUND" in refused(cli, "describe", "absent")


def test_a_hanging_transaction_is_found_and_aborted(cli: Cli, servers: str, topic: str) -> None:
    start = hanging(servers, topic, committed_before=False)
    find = ("find-hanging", topic, "--max-transaction-timeout")
    (row,) = cli.json("transactions", *find, "0")
    assert (row["topic"], row["partition"], row["start_offset"]) == (topic, 0, start)
    assert cli.json("transactions", *find, "0", "--broker-id", "9") == []
    assert cli.json("transactions", "find-hanging", topic) == []
    (found,) = cli.json("transactions", "why", f"{topic}:0")
    assert found["because"] == (
        "the transaction hangs: no transaction of this epoch committed in this partition"
    )
    abort = ("abort", f"{topic}:0", "--start-offset", str(start))
    assert found["advice"] == " ".join(["barnabas", "transactions", *abort])
    code, out, _ = cli.run("transactions", "repair", topic)
    assert code == 1
    assert b"\tunknown\tFalse\tno marker is certain where an epoch has many" in out
    said = refused(cli, "abort", f"{topic}:0", "--start-offset", "7")
    assert said == f"barnabas: no transaction is open in {topic}:0 from 7 on"
    done = cli("transactions", *abort)
    assert done.decode() == f"Aborted the transaction at offset 0 of {topic}:0.\n"
    assert cli.json("transactions", *find, "0") == []
    assert committed_values(servers, topic) == []


def test_abort_refuses_an_undecidable_transaction_unless_forced(
    cli: Cli, servers: str, topic: str
) -> None:
    start = hanging(servers, topic, committed_before=True)
    abort = ("abort", f"{topic}:0", "--start-offset", str(start))
    assert "one of this epoch committed here" in refused(cli, *abort)
    (found,) = cli.json("transactions", "why", topic)
    assert found["advice"] == " ".join(["barnabas", "transactions", *abort, "--force"])
    assert cli.json("transactions", *abort, "--force")["aborted"] is True
    assert committed_values(servers, topic) == [b"good"]


def test_abort_leaves_an_open_transaction_to_its_coordinator(
    cli: Cli, servers: str, topic: str
) -> None:
    _, producer = opened(servers, topic, 0)
    assert cli.json("transactions", "find-hanging", "--max-transaction-timeout", "0") == []
    said = refused(cli, "abort", f"{topic}:0", "--start-offset", "0")
    assert said == (
        "barnabas: not aborted: its coordinator has it open; --force aborts it nevertheless"
    )
    producer.end(committed=True)
    until(lambda: committed_values(servers, topic) == [b"open"])


def test_why_names_the_error_that_blocks_a_marker(
    cli: Cli, servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_writer: MarkerWriter, write: MarkerWrite) -> None:
        write.done(ErrorCode.KAFKA_STORAGE_ERROR)

    transactional_id, producer = opened(servers, topic, 0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(MarkerWriter, "_write", full)
        patch.setattr(MarkerWriter, "put", lambda *_: False)
        producer.end(committed=True)

        def told() -> bool:
            found = cli.json("transactions", "why", f"{topic}:1")
            events = [happened["event"] for each in found for happened in each["timeline"]]
            return f"marker in {topic}-1 not written yet: KAFKA_STORAGE_ERROR" in events

        until(told)
        first, second = cli.json("transactions", "why", topic)
        assert (first["partition"], second["partition"]) == (0, 1)
        for found in first, second:
            assert found["because"] == "its coordinator is in PrepareCommit, markers follow"
            assert (found["state"], found["advice"]) == ("PrepareCommit", None)
            assert (found["transactional_id"], found["time_left_ms"]) == (transactional_id, None)
        assert cli.json("transactions", "repair", topic) == []
        assert "markers follow" in refused(cli, "abort", f"{topic}:0", "--start-offset", "0")
    until(lambda: cli.json("transactions", "why", topic) == [])
    assert committed_values(servers, topic) == [b"open"]
