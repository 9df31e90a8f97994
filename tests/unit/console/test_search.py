"""The search of records: paths into JSON, headers, and fields that are masked."""

import json
from typing import Any

import pytest

from barnabas.client.consumer import Message
from barnabas.console.search import Search, parse_path


def record(value: bytes | None, key: bytes | None = None, *headers: tuple[str, Any]) -> Message:
    return Message("people", 0, 7, 1000, 0, key, value, headers)


def finds(message: Message, *masks: str, **given: str) -> bool:
    return Search.of(given, masks).matches(message)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("$", []),
        ("name", ["name"]),
        ("$.items[0].name", ["items", 0, "name"]),
        ("items[-1][*]", ["items", -1, None]),
        ("$.*.a b", [None, "a b"]),
        ('$["odd.\\"name[0]"].x', ['odd."name[0]', "x"]),
    ],
)
def test_path_is_parsed(text: str, steps: list[Any]) -> None:
    assert parse_path(text) == steps


@pytest.mark.parametrize("text", ["a..b", "a[", "a[x]", "a[1", '["a]', "a[]", ".", "a." * 40 + "a"])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"path|Invalid"):
        parse_path(text)


@pytest.mark.parametrize(
    ("path", "value", "found"),
    [
        ("at[0].n", "1", True),
        ("at[1].n", "1", False),
        ("at[*].n", "two", True),
        ("at[*].n", "1.0", False),
        ("*[0].n", "1", True),
        ("ok", "true", True),
        ("ok", "1", False),
        ("none", "null", True),
        ("none", None, True),
        ("other", None, False),
        ("at[0]", '{"n":1}', True),
        ("at[9].n", None, False),
        ("name.x", None, False),
        ("name", "<b>", True),
    ],
)
def test_value_is_found_by_its_path(path: str, value: str | None, found: bool) -> None:
    data = {"at": [{"n": 1}, {"n": "two"}], "ok": True, "none": None, "name": "<b>"}
    given = {"path": path} | ({} if value is None else {"path_value": value})
    assert finds(record(json.dumps(data).encode()), **given) is found


@pytest.mark.parametrize("value", [None, b"", b"text", b"\xff", b"[" * 100_000, b"1" * 5000])
def test_value_that_is_no_json_has_no_path(value: bytes | None) -> None:
    assert not finds(record(value), path="a")


def test_header_is_found_by_name_and_value() -> None:
    message = record(b"", None, ("trace", b"abc"), ("trace", None), ("raw", b"\xff"))
    assert finds(message, header="trace")
    assert finds(message, header="trace", header_value="abc")
    assert finds(message, header="raw")
    assert not finds(message, header="trace", header_value="ab")
    assert not finds(message, header="Trace")


def test_all_conditions_hold_together() -> None:
    message = record(b'{"a": 1}', b"k", ("h", b"v"))
    assert finds(message, key="k", header="h", path="a")
    assert not finds(message, key="k", header="h", path="b")
    assert finds(message)


@pytest.mark.parametrize(
    "given",
    [
        {"header": "EMAIL"},
        {"path": "$.people[*].email"},
        {"path": '["Email"]'},
        {"header_value": "x"},
        {"path_value": "x"},
    ],
)
def test_search_that_cannot_be_made_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"masked|needs"):
        Search.of(given, ["Email"])


def test_masked_field_is_not_told_by_a_search() -> None:
    secret = b'{"email": "SECRET"}'
    message = record(b'{"at": {"email": "SECRET"}, "n": 1}', secret, ("h", secret))
    text = secret.decode()
    assert finds(message, key=text, header="h", header_value=text)
    assert not finds(message, "email", key=text)
    assert not finds(message, "email", header="h", header_value=text)
    assert not finds(message, "email", path="at.*")
    assert not finds(message, "email", path="at", path_value=text)
    assert finds(message, "email", path="n", path_value="1")
    assert finds(record(b"", b"plain"), "email", key="plain")
