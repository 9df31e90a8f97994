"""The history as a file: what was written is read, and damage is told with its line."""

import io
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.main import cli
from barnabas.verify.history import INVOKE, OK, CorruptHistory, Event, History, read_history

WHOLE: Final = b'{"t":0.5,"op":1,"proc":"w","f":"admin","type":"info","value":{},"err":null}\n'
VALUES: Final = st.dictionaries(
    st.text(),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(), st.lists
    ),
)


@given(VALUES, VALUES)
def test_events_are_read_as_they_were_written(
    asked: dict[str, Any], answered: dict[str, Any]
) -> None:
    file = io.StringIO()
    history = History(file, iter([1.0, 1.25, 3.0]).__next__)
    operation = history.invoke("w", "send", asked)
    history.ok(operation, answered)
    file.write('{"t":2.5,"op":')
    file.seek(0)
    assert list(read_history(file)) == [
        Event(0.25, operation, "w", "send", INVOKE, asked),
        Event(2.0, operation, "w", "send", OK, answered),
    ]


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (b"hello\n", "Invalid JSON: expected value at line 1 column 1"),
        (b"\n", "Invalid JSON: EOF while parsing a value at line 2 column 0"),
        (WHOLE[:-6] + b"\n", "Invalid JSON: EOF while parsing a value at line 2 column 0"),
        (b"null\n", ""),  # The text depends on the version of pydantic.
        (WHOLE.replace(b'"op":1,', b""), "op: "),
        (WHOLE.replace(b'"op":1', b'"op":"one"'), "op: Input should be a valid integer"),
        (WHOLE.replace(b'"info"', b'"okay"'), "type: Input should be 'invoke', 'ok', 'fail' or"),
        (WHOLE.replace(b'"err"', b'"\\n"'), "'\\n': "),
        (WHOLE.replace(b'"w"', b'"\xff"'), "Input should be a valid string"),
        (b"[" * 100_000 + b"\n", "Invalid JSON: recursion limit exceeded"),
    ],
    ids=range(10),
)
def test_damaged_line_is_told_with_its_number_in_one_line(
    tmp_path: Path, damaged: bytes, reason: str
) -> None:
    file = tmp_path / "history"
    file.write_bytes(WHOLE + damaged + WHOLE)
    done = CliRunner().invoke(cli, ["verify", "eos", "check", str(file)])
    assert isinstance(done.exception, CorruptHistory)
    (line,) = str(done.exception).splitlines()
    assert line.startswith(f"line 2 is not an event: {reason}")
