"""Rows on a terminal: no name and no value is cut, whatever the width."""

import io
import os
from contextlib import redirect_stdout
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from barnabas.cli.tables import cell, escape, for_people, print_card, print_rows

NAMES = st.text("ab -_.[]/:é漢\x1b\n", min_size=1, max_size=60).map(lambda name: f"<{name}>")
SENTENCES = st.lists(st.text("abc[]é", min_size=1, max_size=12), min_size=1, max_size=20).map(
    " ".join
)
VALUES = st.one_of(NAMES, st.integers(), st.none(), st.lists(st.integers(), max_size=9))
ROWS = st.lists(
    st.fixed_dictionaries(
        {"topic": NAMES, "group": VALUES, "lag": st.integers(), "why": SENTENCES}
    ),
    min_size=1,
    max_size=4,
)


def screen(columns: list[str], rows: list[dict[str, Any]], width: int, title: str = "") -> str:
    with redirect_stdout(io.StringIO()) as out, patch.dict(os.environ, COLUMNS=str(width)):
        print_rows(columns, rows, title)
    return out.getvalue()


@given(ROWS, st.integers(20, 200))
def test_every_name_is_whole_and_every_sentence_complete(
    rows: list[dict[str, Any]], width: int
) -> None:
    columns = ["topic", "group", "lag", "why"]
    shown = screen(columns, rows, width)
    for row in rows:
        for column in columns[:-1]:
            assert row[column] is None or escape(cell(row[column])) in shown
        for word in row["why"].split():
            assert word in shown
    lines = shown.splitlines()
    if len(rows) > 1 and lines[0].split() == columns:
        assert max(map(cell_len, lines)) <= width


def test_table_folds_sentences_and_keeps_names() -> None:
    rows = [
        {"where": "a-long-name-of-a-topic-0", "problem": "two of three replicas are out of sync"},
        {"where": "b", "problem": "no leader"},
    ]
    assert screen(["where", "problem"], rows, 44, "c\x1bluster").split("\n") == [
        "c\\x1bluster",
        "where                     problem           ",
        "a-long-name-of-a-topic-0  two of three      ",
        "                          replicas are out  ",
        "                          of sync           ",
        "b                         no leader         ",
        "",
    ]
    assert screen(["where", "problem"], rows, 30).splitlines() == [
        "where    a-long-name-of-a-topic-0",
        "problem  two of three replicas are out of sync",
        "",
        "where    b",
        "problem  no leader",
    ]


def test_empty_column_is_left_out_before_a_table_becomes_cards() -> None:
    rows = [{"topic": name, "held_back_by": None, "lag": 0} for name in ("long-name", "b")]
    columns = ["topic", "held_back_by", "lag"]
    assert screen(columns, rows, 28).splitlines()[0].split() == columns
    assert [line.split() for line in screen(columns, rows, 27).splitlines()] == [
        ["topic", "lag"],
        ["long-name", "0"],
        ["b", "0"],
    ]


def test_row_alone_is_a_card() -> None:
    row = {"broker": 1, "isr": [1, 2], "dirs": ["/a", "/b"], "none": [], "of": {"x": 1, "y": None}}
    assert screen(list(row), [row], 80).splitlines() == [
        "broker  1",
        "isr     1,2",
        "dirs    /a",
        "dirs    /b",
        "none    -",
        "of      x=1 y=-",
    ]
    with redirect_stdout(io.StringIO()) as out:
        print_card({"name": "a\nb"})
    assert out.getvalue() == "name  a\\nb\n"


@given(st.text("ab/é漢 ", min_size=1, max_size=60), st.integers(28, 60))
def test_folded_path_is_whole(path: str, width: int) -> None:
    rows = [{"log_dir": f"/{path}", "state": "online"}, {"log_dir": "/", "state": "gone"}]
    head, *lines = screen(["log_dir", "state"], rows, width).splitlines()
    assert head.split() == ["state", "log_dir"]
    shown = "".join(line[len("online  ") :].rstrip() for line in lines[:-1])
    assert shown.replace(" ", "") == f"/{path}".replace(" ", "")
    assert max(map(cell_len, lines)) <= width


def test_sizes_have_units_on_a_terminal() -> None:
    rows = [
        {"log_dir": "/a/b", "bytes": 0, "total_bytes": -1},
        {"log_dir": "/a/c", "bytes": 1 << 20, "total_bytes": 3 << 39},
    ]
    assert screen(["log_dir", "bytes", "total_bytes"], rows, 40).splitlines() == [
        "  size   total  log_dir",
        "    0B       -  /a/b   ",
        "1.0MiB  1.5TiB  /a/c   ",
    ]
    with redirect_stdout(io.StringIO()) as out, patch.dict(os.environ, COLUMNS="40"):
        print_rows(["broker", "bytes"], [{"broker": 1, "bytes": 2048}], "", table=True)
    assert out.getvalue().splitlines() == ["broker    size", "     1  2.0KiB"]


def test_times_and_durations_of_an_answer_are_for_people() -> None:
    answers = [
        {"expires_at_ms": 0, "last_timestamp_ms": 1, "age_ms": 1500, "p50_ms": 0.5, "n": 7},
        {"expires_at_ms": None, "last_timestamp_ms": -1, "age_ms": 0, "n": 8},
    ]
    assert for_people(answers[0], answers) == (
        ["expires", "last_timestamp", "age", "p50_ms", "n"],
        [
            {
                "expires": "1970-01-01 00:00:00.000+00:00",
                "last_timestamp": "1970-01-01 00:00:00.001+00:00",
                "age": "1.5 s",
                "p50_ms": 0.5,
                "n": 7,
            },
            {"expires": None, "last_timestamp": None, "age": "0.0 s", "p50_ms": None, "n": 8},
        ],
    )
    assert for_people(["age_ms", "n"], []) == (["age", "n"], [])


def test_cell_of_nothing_is_a_dash() -> None:
    assert [cell(each) for each in (None, [], {}, 0, False)] == ["-", "-", "-", "0", "False"]
