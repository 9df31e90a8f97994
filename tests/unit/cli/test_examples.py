"""Every command's help has examples, and the command line takes them."""

import json
import re
import shlex
from pathlib import Path

import pytest

from barnabas.cli.examples import EXAMPLES
from barnabas.cli.main import cli
from tests.support.command_tree import COMMANDS

FILES = (
    "server.properties", "plan.json", "lines.txt", "password.txt", "history.jsonl", "job.yaml",
    "order.avsc",
)  # fmt: skip


def test_every_command_has_an_example_and_no_other() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("words", EXAMPLES)
def test_help_ends_with_the_examples(words: str) -> None:
    command, context = COMMANDS[words]
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
    monkeypatch.setattr("sys.stdin", (tmp_path / "plan.json").open())
    for name in ("data/orders-0", "data-1", "data-2", "data-3"):
        (tmp_path / name).mkdir(parents=True)
    ran = []
    for each, (command, _) in COMMANDS.items():
        monkeypatch.setattr(command, "callback", lambda each=each, **_: ran.append(each))
    for example in EXAMPLES[words]:
        assert words in example
        for part in re.findall(r"barnabas [^|>)]+", example):
            cli.main(shlex.split(part)[1:], prog_name="barnabas", standalone_mode=False)
    assert words in ran
