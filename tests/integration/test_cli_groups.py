"""`barnabas groups` with members, without them, and with offsets of a deleted topic."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from confluent_kafka import Consumer

from barnabas.client.group_admin import GroupAdmin
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker
from tests.support.command_line import DEADLINE, Cli


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def member(cli: Cli, group: str, topic: str) -> Consumer:
    consumer = Consumer(
        {"bootstrap.servers": cli.servers, "group.id": group, "client.id": f"{group}-client"}
    )
    consumer.subscribe([topic])
    return consumer


def stable_with(cli: Cli, group: str, members: list[Consumer]) -> dict[str, Any]:
    """Return the description of a group that all members have joined."""
    deadline = time.monotonic() + DEADLINE
    while True:
        for each in members:
            each.poll(0.05)
        found = cli.json("groups", "list")
        if {"group": group, "state": "Stable"}.items() <= next(
            (row for row in found if row["group"] == group), {}
        ).items():
            described: dict[str, Any] = cli.json("groups", "describe", group)
            if len(described["members"]) == len(members):
                return described
        assert time.monotonic() < deadline, found


def test_group_with_a_member_that_has_no_partition(cli: Cli) -> None:
    cli("topics", "create", "narrow", "-p", "1")
    with ExitStack() as stack:
        members = [stack.enter_context(closing(member(cli, "two", "narrow"))) for _ in range(2)]
        found = stable_with(cli, "two", members)
        shown = cli("groups", "describe", "two").decode()
    assert found["coordinator"] == {"broker": 0, "address": cli.servers}
    assert (found["group"], found["state"], found["assignor"]) == ("two", "Stable", "range")
    assert sorted(each["partitions"] for each in found["members"]) == [0, 1]
    assert {each["client_id"] for each in found["members"]} == {"two-client"}
    (row,) = found["partitions"]
    assert row["member"] in {each["member"] for each in found["members"] if each["partitions"]}
    assert "members\t2 (1 without partitions)\n" in shown
    (idle,) = (each["member"] for each in found["members"] if not each["partitions"])
    last = shown.splitlines()[-1].split("\t")
    assert (last[0], idle in last) == ("-", True)


def test_totals_of_all_groups(cli: Cli) -> None:
    cli("topics", "create", "summed", "-p", "2")
    for partition, lines in (("0", b"a\nb\n"), ("1", b"c\n")):
        cli("produce", "summed", "-p", partition, stdin=lines)
    for group in ("all-1", "all-2"):
        cli("groups", "reset-offsets", group, "-t", "summed", "--to-earliest")
    found = {each["group"]: each for each in cli.json("groups", "describe", "--all")}
    assert found.keys() >= {"all-1", "all-2"}
    for group in ("all-1", "all-2"):
        one = cli.json("groups", "describe", group)
        assert one == found[group]
        assert (one["state"], one["lag"], one["to_read"], one["held_back"]) == ("Empty", 3, 3, 0)
        assert (one["assignor"], one["members"], one["exact"]) == (None, [], True)
        assert [row["lag"] for row in one["partitions"]] == [2, 1]
    assert cli("groups", "describe", "--all").count(b"\nstate\tEmpty\n") >= 2
    for wrong in ([], ["all-1", "--all"]):
        code, _, errors = cli.run("groups", "describe", *wrong)
        assert (code, b"either a GROUP or --all" in errors) == (2, True)


def test_an_offset_of_a_deleted_topic_has_no_end(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("topics", "create", "kept")
    cli("groups", "reset-offsets", "readers", "-t", "kept", "--to-earliest")

    async def offsets(_: GroupAdmin, _group: str) -> dict[TopicPartition, int]:
        # Kafka keeps such an offset for a moment after the topic.
        return {TopicPartition("gone", 0): 7}

    monkeypatch.setattr(GroupAdmin, "offsets", offsets)
    found = cli.json("groups", "describe", "readers")
    (row,) = found["partitions"]
    assert (row["offset"], row["end"], row["lag"]) == (7, None, None)
    assert found["lag"] == 0
