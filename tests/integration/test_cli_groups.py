"""`barnabas groups` with members, without them, and with offsets of a deleted topic."""

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from barnabas.client.group_admin import GroupAdmin
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker
from tests.support.command_line import DEADLINE, Cli


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def member(cli: Cli, group: str, topic: str, protocol: str = "classic") -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": cli.servers,
            "group.id": group,
            "client.id": f"{group}-client",
            "group.protocol": protocol,
        }
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
    reads, idle = sorted(found["members"], key=lambda each: not each["assigned"])
    assert (reads["assigned"], idle["assigned"]) == (["narrow:0"], [])
    assert {each["client_id"] for each in found["members"]} == {"two-client"}
    (row,) = found["partitions"]
    assert row["member"] == reads["member"]
    assert "members\t2 (1 without partitions)\n" in shown
    lines = [line.split("\t") for line in shown.splitlines()[-2:]]
    assert sorted((line[0], line[-1]) for line in lines) == sorted(
        [(reads["member"], "narrow:0"), (idle["member"], "-")]
    )


def test_group_of_the_consumer_protocol_has_epochs_and_targets(cli: Cli) -> None:
    cli("topics", "create", "modern", "-p", "3")
    with ExitStack() as stack:
        members = [
            stack.enter_context(closing(member(cli, "newer", "modern", "consumer")))
            for _ in range(2)
        ]
        found = stable_with(cli, "newer", members)
        shown = cli("groups", "describe", "newer").decode()
        listed = {each["group"]: each for each in cli.json("groups", "list")}
        code, _, errors = cli.run("groups", "delete", "newer", "--yes")
        assert (code, b"NON_EMPTY_GROUP" in errors) == (1, True)
    assert listed["newer"].items() >= {"type": "consumer", "protocol": "consumer"}.items()
    assert (found["type"], found["assignor"]) == ("consumer", "uniform")
    assert found["epoch"] == found["assignment_epoch"] >= 2
    assert sorted(each for row in found["members"] for each in row["target"]) == [
        f"modern:{partition}" for partition in range(3)
    ]
    for row in found["members"]:
        assert (row["assigned"], row["epoch"]) == (row["target"], found["epoch"])
        assert (row["protocol"], row["subscribed"]) == ("consumer", ["modern"])
        assert (row["expression"], row["client_id"]) == (None, "newer-client")
    assert f"epoch\t{found['epoch']}\n" in shown
    assert "member\tclient_id\thost\tassigned\tepoch\ttarget\n" in shown
    # Its members have left.
    cli("groups", "reset-offsets", "newer", "-t", "modern", "--to-earliest")
    left = cli.json("groups", "describe", "newer")
    assert (left["state"], left["members"]) == ("Empty", [])
    assert [row["offset"] for row in left["partitions"]] == [0, 0, 0]
    cli("groups", "delete", "newer", "--yes")


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

    async def offsets(_: GroupAdmin, groups: Iterable[str]) -> dict[str, dict[TopicPartition, int]]:
        # Kafka keeps such an offset for a moment after the topic.
        return {each: {TopicPartition("gone", 0): 7} for each in groups}

    monkeypatch.setattr(GroupAdmin, "offsets_of", offsets)
    found = cli.json("groups", "describe", "readers")
    (row,) = found["partitions"]
    assert (row["offset"], row["end"], row["lag"]) == (7, None, None)
    assert row["out_of_range"] == "gone"
    assert found["lag"] == 0
    reset = ("groups", "reset-offsets", "readers")
    assert [row["offset"] for row in cli.json(*reset, "--to-current")] == [7]
    code, _, errors = cli.run(*reset, "--to-earliest")
    assert (code, b"no partition that has an offset exists" in errors) == (1, True)


def test_offset_outside_of_its_log_is_named_and_has_no_negative_lag(cli: Cli, moved: str) -> None:
    cli("topics", "delete-records", moved, "-p", "0", "-o", "3")
    group = ("groups", "reset-offsets", moved)
    commit(cli.servers, moved, {0: 1, 1: 444})
    found = cli.json("groups", "describe", moved)
    rows = [(row["lag"], row["to_read"], row["out_of_range"]) for row in found["partitions"]]
    assert rows == [(3, 1, "below_start"), (0, 0, "behind_end")]
    assert (found["lag"], found["to_read"], found["held_back"]) == (3, 1, 0)
    shown = cli("groups", "describe", moved).decode()
    assert "out_of_range" in shown
    assert "behind_end" in shown
    assert [row["offset"] for row in cli.json(*group, "--to-current")] == [1, 444]
    assert offsets(cli, moved) == [1, 444]
    # From the commit, not from the start of the log: as Kafka's tool.
    assert [row["offset"] for row in cli.json(*group, "--shift-by", "1", "--dry-run")] == [3, 4]
    assert [row["offset"] for row in cli.json(*group, "--shift-by=-442", "--dry-run")] == [3, 2]
    cli("groups", "delete-offsets", moved, "-t", moved, "-p", "1")
    code, _, errors = cli.run(*group, "-t", moved, "--shift-by", "1")
    assert (code, f"no committed offset in {moved}-1 to shift".encode() in errors) == (1, True)


def commit(servers: str, group: str, wanted: dict[int, int]) -> None:
    with closing(Consumer({"bootstrap.servers": servers, "group.id": group})) as consumer:
        places = [Position(group, partition, offset) for partition, offset in wanted.items()]
        consumer.commit(offsets=places, asynchronous=False)


def offsets(cli: Cli, group: str) -> list[int]:
    return [row["offset"] for row in cli.json("groups", "describe", group)["partitions"]]


@pytest.fixture
def moved(cli: Cli, request: pytest.FixtureRequest) -> str:
    """Return a topic and group of two partitions with four records each, two of them old."""
    name = request.function.__name__
    cli("topics", "create", name, "-p", "2")
    for partition in ("0", "1"):
        cli("produce", name, "-p", partition, "-T", "1000", stdin=b"a\nb\n")
        cli("produce", name, "-p", partition, stdin=b"c\nd\n")
    cli("groups", "reset-offsets", name, "-t", name, "--to-latest")
    return str(name)


def test_reset_of_some_partitions_and_by_times(cli: Cli, moved: str) -> None:
    reset = ("groups", "reset-offsets", moved)
    cli(*reset, "-t", f"{moved}:1", "--to-offset", "0")
    assert offsets(cli, moved) == [4, 0]
    cli(*reset, "-t", f"{moved}:0,1", "--shift-by=-1")
    assert offsets(cli, moved) == [3, 0]
    for way in (
        "--by-duration=1h",
        "--by-duration=-1h",
        "--to-time=-1h",
        "--to-datetime=2026-01-01",
    ):
        cli(*reset, "--to-latest")
        cli(*reset, way)
        assert offsets(cli, moved) == [2, 2], way
    cli(*reset, "--to-time", "1970-01-01T00:00:01Z")
    assert offsets(cli, moved) == [0, 0]
    cli(*reset, "--to-time", "2090-01-01")
    assert offsets(cli, moved) == [4, 4]
    code, _, errors = cli.run(*reset, "--by-duration", "soon")
    assert (code, b"7d, 90m or 500ms" in errors) == (2, True)
    code, _, errors = cli.run(*reset, "-t", f"{moved}:7", "--to-latest")
    assert (code, f"topic {moved} has no partition 7".encode() in errors) == (1, True)


def test_reset_to_another_group_and_by_files(cli: Cli, moved: str, tmp_path: Path) -> None:
    file = str(tmp_path / "offsets.csv")
    reset = ("groups", "reset-offsets", moved)
    cli(*reset, "-t", f"{moved}:0", "--to-offset", "1")
    cli(*reset, "--to-current", "--to-file", file, "--dry-run")
    assert Path(file).read_text() == f"{moved},0,1\n{moved},1,4\n"
    cli(*reset, "--to-earliest")
    rows = cli.json(*reset, "--from-file", file, "--dry-run")
    assert [(row["was"], row["offset"]) for row in rows] == [(0, 1), (0, 4)]
    assert offsets(cli, moved) == [0, 0]
    cli(*reset, "--from-file", file)
    assert offsets(cli, moved) == [1, 4]
    cli("groups", "reset-offsets", "follows", "--to-group", moved)
    assert offsets(cli, "follows") == [1, 4]
    cli(*reset, "--to-latest")
    cli("groups", "reset-offsets", "follows", "-t", f"{moved}:0", "--to-group", moved)
    assert offsets(cli, "follows") == [4, 4]
    for wrong in (f"{moved},0", f"{moved},0,x", f"g,{moved},0,1", ""):
        Path(file).write_text(f"{moved},1,0\n{wrong}\n" if wrong else "")
        code, _, errors = cli.run(*reset, "--from-file", file)
        assert (code, (b"line 2" if wrong else b"no offset") in errors) == (2, True)


def test_group_with_nothing_to_reset_is_an_error(cli: Cli, moved: str) -> None:
    for arguments, told in (
        (("absent", "--to-latest"), "group absent has no committed offset; name topics"),
        ((moved, "--to-group", "absent"), "group absent has no committed offset"),
        (("absent", "-t", moved, "--to-current"), "no offset for the named partitions"),
    ):
        code, _, errors = cli.run("groups", "reset-offsets", *arguments)
        assert (code, told in errors.decode()) == (1, True), errors
