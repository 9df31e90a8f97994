"""Records as text: masked fields never come through, whatever the bytes are."""

import json

import pytest

from barnabas.client.consumer import Message
from barnabas.console.records import Shown, shown
from barnabas.console.search import Search

HIDDEN = "(hidden)"


def record(value: bytes | None, key: bytes | None = None, **headers: bytes | None) -> Message:
    return Message("people", 0, 7, 1000, 0, key, value, tuple(headers.items()))


def masked(value: bytes | None, key: bytes | None = None) -> Shown:
    return shown(record(value, key), ["Email"])


@pytest.mark.parametrize(
    "value",
    [
        b'{"email": "SECRET"}',
        b'{"EMAIL": {"any": "SECRET"}}',
        b'[[{"a": {"email": ["SECRET"]}}]]',
        b'{"email": "SECRET", "email": 1}',
        b'{"\\u0065mail": "SECRET"}',
        b"email=SECRET",
        b'"SECRET"',
        b'{"email": "SECRET"',
        b'\xef\xbb\xbf{"email": "SECRET"}',
        '{"email": "SECRET"}'.encode("utf-16"),
        b'{"email": "SECRET", "n": ' + b"1" * 5000 + b"}",
        b"[" * 100_000 + b'{"email": "SECRET"}',
        b"\xffSECRET",
    ],
)
def test_masked_field_is_not_shown(value: bytes) -> None:
    found = masked(value)
    assert found.value is not None
    assert "SECRET" not in found.value
    if value != b'"SECRET"':
        # A text without fields is a key like any other.
        assert "SECRET" not in str(masked(b"{}", value).key)


@pytest.mark.parametrize(
    "text",
    [
        '{"email": "SECRET"}',
        '[{"a": {"email": "SECRET"}}]',
        '{"\\u0065mail": "SECRET"}',
        '{"email": "SECRET", "email": 1}',
        '{"email": "SECRET"',
        'failed: {"email": "SECRET"}',
        '\ufeff{"email": "SECRET"}',
        json.dumps('{"email": "SECRET"}'),
        json.dumps({"event": '{"email": "SECRET"}'}),
        "[" * 100_000 + '{"email": "SECRET"}',
    ],
)
def test_masked_field_of_json_in_a_text_is_not_shown(text: str) -> None:
    value = json.dumps({"payload": text, "id": 7}).encode()
    found = masked(value)
    assert "SECRET" not in (found.value or "")
    assert json.loads(found.value or "")["id"] == 7
    assert not Search.of({"path": "payload", "path_value": text}, ["email"]).matches(record(value))


def test_text_without_masked_fields_is_shown() -> None:
    for text in ("[INFO] started", "C:\\new", '{"name": "Ann"}', "{name}", "email me"):
        found = masked(json.dumps({"payload": text}).encode())
        assert json.loads(found.value or "") == {"payload": text}


def test_other_fields_are_shown() -> None:
    found = masked(b'{"name": "Ann", "email": "x", "n": [1, 2.5, null, true]}')
    expected = {"name": "Ann", "email": HIDDEN, "n": [1, 2.5, None, True]}
    assert json.loads(found.value or "") == expected
    assert masked(None).value is None
    assert masked(b"{}", b"c-17").key == "c-17"


def test_header_is_masked_by_its_name_and_its_fields() -> None:
    headers = {"eMail": b"SECRET", "json": b'{"email": "SECRET"}', "other": b"text", "none": None}
    found = shown(record(b"{}", **headers), ["Email"])
    assert found.headers == [
        ("eMail", HIDDEN),
        ("json", '{"email": "(hidden)"}'),
        ("other", "text"),
        ("none", None),
    ]


def test_long_value_is_cut_and_its_size_is_told() -> None:
    found = shown(record(b"x" * 10_000, b"key"), [])
    assert found.value == "x" * 4096 + "… and 5904 more characters"
    assert found.bytes == 10_003


def test_damaged_record_of_an_internal_topic_says_so() -> None:
    message = Message("__consumer_offsets", 0, 0, 0, 0, b"\x00\x01junk", b"junk", ())
    assert "error" in (shown(message, []).key or "")
