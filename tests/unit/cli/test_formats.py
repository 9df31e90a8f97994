"""Delimiters and kcat formats on the command line."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.arguments import parse_pairs, unescape
from barnabas.cli.formats import compile_format
from barnabas.client.consumer import Message

MESSAGE = Message("t", 3, 7, 99, 0, b"key", "w\u00e9rt".encode(), (("a", b"1"), ("b", None)))
NULLS = Message("t", 0, 0, 0, 0, None, None, ())


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("%s", "w\u00e9rt"),
        (
            "%t [%p] at %o: %k=%s (%K, %S) %T %h\\n",
            "t [3] at 7: key=w\u00e9rt (3, 5) 99 a=1,b=NULL\n",
        ),
        ("100%% \\x41\\t\u20ac\u00e9\\\\", "100% A\t\u20ac\u00e9\\"),
        ("%R", "\0\0\0\5"),
        ("\\x25s %% %t", "%s % t"),
        ("", ""),
    ],
)
def test_format_prints_the_fields_of_a_record(text: str, line: str) -> None:
    assert compile_format(text)(MESSAGE) == line.encode()


def test_null_is_printed_as_given_and_has_length_minus_1() -> None:
    assert compile_format("%k|%s|%K|%S")(NULLS) == b"||-1|-1"
    assert compile_format("%k|%s", null=b"NULL")(NULLS) == b"NULL|NULL"


def test_terminal_is_given_no_control_character_of_a_record() -> None:
    value = "a\x1b[2J\r\tb\x9b\u202e\u00e9".encode() + b"\xff"
    evil = Message("t", 0, 0, 0, 0, b"k\n", value, (("h\x07", b"\x00"),))
    line = compile_format("%k\\t%s %h\\n", for_terminal=True)(evil).decode()
    shown = r"a\x1b[2J\r\tb\x9b\u202e" + "\u00e9" + r"\xff"
    assert line == r"k\n" + f"\t{shown} " + r"h\x07=\x00" + "\n"
    assert compile_format("%s")(evil) == value


@pytest.mark.parametrize("text", ["%x", "%", "%\\n", "\\x1", "\\"])
def test_invalid_format_is_a_usage_error(text: str) -> None:
    with pytest.raises(click.UsageError):
        compile_format(text)


@given(st.text(st.characters(exclude_characters="\\", exclude_categories=["Cs"])))
def test_text_without_escapes_is_unchanged(text: str) -> None:
    assert unescape(text) == text.encode()


def test_pairs_may_have_empty_values_and_equal_signs() -> None:
    assert parse_pairs(["a=", "b=c=d"]) == {"a": "", "b": "c=d"}
    for wrong in ("a", "=b"):
        with pytest.raises(click.UsageError, match="is not KEY=VALUE"):
            parse_pairs([wrong])
