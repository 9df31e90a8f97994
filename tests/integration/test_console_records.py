"""The console's search of records and its live tail, with content that would like to be code."""

import re
from collections.abc import Iterator
from typing import Final

import pytest

from barnabas.console import records
from barnabas.testing import Broker
from tests.support.running_console import Answered, RunningConsole

CODE: Final = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}"
SHOWN: Final = re.compile(r'<td class="number">(\d+)</td>\s*<td class="number">(\d+)</td>\s*<td>')


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("people", partitions=2)
        for number in range(20):
            broker.produce(
                "people",
                json={"id": number, "pets": [{"name": f"pet {number} {CODE}"}], "email": "SECRET"},
                headers=[(f"header {CODE}", str(number % 2).encode())],
                partition=number % 2,
            )
        broker.produce("people", "no JSON", partition=0)
        broker.create_topic("wide", partitions=17)
        yield broker


@pytest.fixture(scope="module")
def console(broker: Broker) -> Iterator[RunningConsole]:
    with RunningConsole(broker.bootstrap_servers) as console:
        yield console


def offsets(answered: Answered) -> list[tuple[int, int]]:
    assert answered.code == []
    return [(int(partition), int(offset)) for partition, offset in SHOWN.findall(answered.text)]


def test_records_are_found_by_header_and_by_json_path(console: RunningConsole) -> None:
    def found(**wanted: object) -> list[tuple[int, int]]:
        return offsets(console.get("/records", topic="people", **wanted))

    assert found(header=f"header {CODE}", header_value="1") == [(1, each) for each in range(10)]
    assert len(found(header=f"header {CODE}")) == 20
    assert found(path="$.pets[*].name", path_value=f"pet 7 {CODE}") == [(1, 3)]
    assert found(path="id", path_value="4") == [(0, 2)]
    assert found(path="id", path_value="4", partition=1) == []
    assert found(path="id", path_value="4", header=f"header {CODE}", header_value="1") == []
    words = console.get("/records", topic="people", path="id", path_value="99").words
    assert "21 records looked at, 0 shown" in words
    assert "Everything up to the end was read" in words
    assert console.request("/records?topic=people&path=a%5B").status == 400


def test_no_partition_fills_the_page_alone_unless_the_others_have_too_little(
    broker: Broker, console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MOST_SHOWN", 7)
    broker.create_topic("shared", partitions=4)
    for partition in (0, 0, 0, 0, 0, 1, 2, 2, 2, 2):
        broker.produce("shared", "x", partition=partition)
    answered = console.get("/records", topic="shared")
    # The share of a partition is 2 of 7; what 1 and 3 do not have is for the first that has more.
    assert offsets(answered) == [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1), (2, 2)]
    assert "Not everything was read" in answered.words
    following = [link for link in answered.links if "partition=0" in link]
    assert offsets(console.request(following[0])) == [(0, 3), (0, 4)]


def test_search_is_kept_by_the_pages_that_go_on(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MOST_SHOWN", 2)
    wanted = {"header": f"header {CODE}", "header_value": "1"}
    answered = console.get("/records", topic="people", partition=1, **wanted)
    assert "Not everything was read" in answered.words
    (following,) = re.findall(r'rel="next" href="([^"]*)"', answered.text)
    assert offsets(console.request(following.replace("&amp;", "&"))) == [(1, 2), (1, 3)]


def test_masked_field_cannot_be_searched(broker: Broker) -> None:
    with RunningConsole(broker.bootstrap_servers, masks=("Email",)) as console:
        refused = console.request("/records?topic=people&path=email&path_value=SECRET")
        assert refused.status == 400
        assert "email is masked" in refused.words
        assert offsets(console.get("/records", topic="people", path="*", path_value="SECRET")) == []
        assert "SECRET" not in console.get("/tail", topic="people").text


def test_tail_shows_the_newest_and_says_what_it_skips(
    broker: Broker, console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    def newer(answered: Answered) -> str:
        (address,) = {each for each in answered.links if each.startswith("/tail?")}
        assert address.replace("&", "&amp;") in answered.text
        return address

    monkeypatch.setattr(records, "MOST_SHOWN", 5)
    broker.create_topic("tailed", partitions=2)
    broker.produce("tailed", *map(str, range(30)), partition=0)
    first = console.get("/tail", topic="tailed")
    assert offsets(first) == [(0, each) for each in (29, 28, 27, 26, 25)]
    assert "Skipped" not in first.words

    broker.produce("tailed", *map(str, range(3)), partition=1)
    second = console.request(newer(first))
    assert offsets(second)[:3] == [(1, 2), (1, 1), (1, 0)]
    assert len(offsets(second)) == 5
    assert "Skipped" not in second.words

    # Of ten, five are looked at.
    broker.produce("tailed", *map(str, range(10)), partition=0)
    third = console.request(newer(second))
    assert offsets(third) == [(0, each) for each in (39, 38, 37, 36, 35)]
    assert "Skipped since the last update: 5 offsets." in third.words
    again = console.request(newer(third))
    assert offsets(again) == offsets(third)
    assert "Skipped" not in again.words

    # Three in each partition are looked at, and five of the six shown.
    broker.produce("tailed", *map(str, range(3)), partition=0)
    broker.produce("tailed", *map(str, range(3)), partition=1)
    assert "Skipped since the last update: 1 offset." in console.request(newer(again)).words


def test_tail_moves_with_the_event_stream_and_has_a_search(console: RunningConsole) -> None:
    answered = console.get("/tail", topic="people", partition=1, path="id", path_value="3")
    assert offsets(answered) == [(1, 1)]
    (live,) = re.findall(r'id="live" hx-get="([^"]*)"', answered.text)
    assert "since=1%3A10" in live
    assert "path_value=3" in live
    for wrong in ("1", "1:2:3", "1:23:4", "x:1", "1:1,", "-1:1", "1:%C2%B2"):
        assert console.request(f"/tail?topic=people&since={wrong}").status == 400


def test_tail_of_many_partitions_is_one_of_them(console: RunningConsole) -> None:
    assert "/tail" not in console.get("/records", topic="wide").text
    assert console.request("/tail?topic=wide").status == 400
    assert "/tail" in console.get("/records", topic="wide", partition=16).text
    assert offsets(console.get("/tail", topic="wide", partition=16)) == []


def test_console_without_records_has_no_tail(broker: Broker) -> None:
    with RunningConsole(broker.bootstrap_servers, show_records=False) as console:
        assert console.request("/tail?topic=people").status == 403
