"""The JSON answers: every command has a type, and prints no other answer."""

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from barnabas.cli import json_answers as answers
from barnabas.cli.commands.configs import _row
from barnabas.cli.failures import explain
from barnabas.protocol.messages.describe_configs import DescribeConfigsResourceResult
from tests.support.command_line import ROOT, environment, run
from tests.support.command_tree import COMMANDS, options


def fields(schema: Any) -> Iterator[str]:
    """Yield the names of fields at any depth; the keys of a map are data."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for each in schema.values():
            yield from fields(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from fields(each)


@pytest.mark.parametrize("command", answers.ANSWERS)
def test_schema_is_one_and_names_of_fields_are_in_snake_case(command: str) -> None:
    schema = answers.schema_of(command)
    Draft202012Validator.check_schema(schema)
    found = set(fields(schema))
    assert found != set()
    assert {each for each in found if not re.fullmatch("[a-z0-9_]+", each)} == set()


def test_each_command_with_json_has_a_type_and_no_other() -> None:
    with_json = {words for words, (command, _) in COMMANDS.items() if "--json" in options(command)}
    assert with_json - answers.ANSWERS.keys() == set()
    assert answers.ANSWERS.keys() - with_json == set()


def test_answer_of_another_form_is_not_printed() -> None:
    row = {"topic": "t", "partitions": 1, "replicas": 1, "id": "x"}
    assert answers.to_json("topics list", [row], indent=None) == (
        '[{"topic":"t","partitions":1,"replicas":1,"id":"x"}]'
    )
    for wrong in ({**row, "more": 1}, {"topic": "t"}, {**row, "replicas": "many"}):
        with pytest.raises(TypeError) as caught:
            answers.to_json("topics list", [wrong])
        told = explain(caught.value)
        assert "the answer of topics list is not as its schema says: [0]" in told
        assert "\n" not in told


def test_name_of_a_file_that_is_not_text_is_escaped() -> None:
    entry = {"file": "\udcff.index", "offset": 1, "position": 2}
    assert answers.to_json("dump-log", entry, indent=None) == (
        '{"file":"\\udcff.index","offset":1,"position":2}'
    )
    for indent in (None, 2):
        texts = [
            answers.to_json("dump-log", {**entry, "file": name}, indent=indent)
            for name in ("\udcff", "x")
        ]
        assert texts[0].replace("\\udcff", "x") == texts[1]


def test_meaning_that_a_broker_leaves_empty_is_null() -> None:
    for text, meaning in (("", None), (None, None), ("age", "age")):
        entry = DescribeConfigsResourceResult(
            name="k",
            value="v",
            read_only=False,
            is_sensitive=False,
            synonyms=[],
            documentation=text,
        )
        assert _row(entry).meaning == meaning


@pytest.mark.parametrize(
    ("words", "beginning", "expected"),
    [
        ([], "pr", {"produce", "profile"}),
        (["groups"], "de", {"describe", "delete", "delete-offsets"}),
        (["topics", "list"], "", set()),
        (["absent"], "", set()),
    ],
)
def test_words_of_a_command_are_completed(
    words: list[str], beginning: str, expected: set[str]
) -> None:
    done = run(
        _BARNABAS_COMPLETE="bash_complete",
        COMP_WORDS=" ".join(["barnabas", "schema", *words, beginning]),
        COMP_CWORD=str(len(words) + 2),
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert {line.partition(",")[2] for line in done.stdout.decode().split()} == expected


def test_schema_names_the_commands_and_refuses_others() -> None:
    done = run("schema")
    assert done.stdout.decode().splitlines() == list(answers.ANSWERS)
    done = run("schema", "topics")
    assert done.returncode == 2
    assert b"no command 'topics' prints JSON; `barnabas schema` lists those that do" in done.stderr


@pytest.mark.parametrize("words", ["topics list", "consume t", "produce t", "groups list"])
def test_pydantic_is_imported_for_json_alone(words: str) -> None:
    program = (
        "import sys\n"
        "from barnabas.cli.main import main\n"
        "sys.argv[1:] = [*sys.argv[1:], '-b', '127.0.0.1:1', '--timeout', '1']\n"
        "try: main()\n"
        "finally: print('pydantic' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words.split()],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env=environment(),
        cwd=ROOT,
        timeout=20,
        check=False,
    )
    assert b"cannot reach 127.0.0.1:1" in done.stderr
    assert done.stdout == b"False\n"
