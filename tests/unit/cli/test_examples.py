"""Every command's help has examples, and the command line takes them."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from barnabas.cli.examples import EXAMPLES
from barnabas.cli.main import cli


def commands(
    command: click.Command, context: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield words, command and context of each command that does something by itself."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield context.command_path.partition(" ")[2], command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, click.Context(found, info_name=name, parent=context))


ALL = {
    words: (command, context)
    for words, command, context in commands(cli, click.Context(cli, info_name="barnabas"))
}
FILES = ("server.properties", "plan.json", "lines.txt", "password.txt", "history.jsonl", "job.yaml")


def test_every_command_has_an_example_and_no_other() -> None:
    assert EXAMPLES.keys() == ALL.keys()


@pytest.mark.parametrize("words", EXAMPLES)
def test_help_ends_with_the_examples(words: str) -> None:
    command, context = ALL[words]
    lines = [line.strip() for line in command.get_help(context).splitlines()]
    assert tuple(lines[-len(EXAMPLES[words]) :]) == EXAMPLES[words]


@pytest.mark.parametrize("words", EXAMPLES)
def test_command_line_takes_the_examples(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        (tmp_path / name).touch()
    rows = [{"topic": "orders", "partition": 0, "replicas": [1]}]
    (tmp_path / "plan.json").write_text(json.dumps({"version": 1, "partitions": rows}))
    for name in ("data/orders-0", "data-1", "data-2", "data-3"):
        (tmp_path / name).mkdir(parents=True)
    ran = []
    for each, (command, _) in ALL.items():
        monkeypatch.setattr(command, "callback", lambda each=each, **_: ran.append(each))
    for example in EXAMPLES[words]:
        assert words in example
        for part in re.findall(r"barnabas [^|>)]+", example):
            cli.main(shlex.split(part)[1:], prog_name="barnabas", standalone_mode=False)
    assert words in ran
