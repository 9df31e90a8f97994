"""The help of every group on a terminal of 80 columns."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from barnabas.cli.main import cli


def groups(command: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    if isinstance(command, click.Group):
        yield path
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from groups(child, *path, name)


@pytest.mark.parametrize("path", list(groups(cli)), ids=" ".join)
def test_no_text_of_a_command_is_cut_off(path: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, [*path, "--help"], terminal_width=80)
    head, _, commands = done.output.partition("\nCommands:\n")
    assert (done.exit_code, commands != "") == (0, True), head
    assert "..." not in commands
    assert max(map(len, done.output.splitlines())) <= 80


@pytest.mark.parametrize("name", cli.list_commands(click.Context(cli)))
def test_command_is_found_by_its_plural_and_its_singular(name: str) -> None:
    other = name.removesuffix("s") if name.endswith("s") else f"{name}s"
    done = CliRunner().invoke(cli, [other, "--help"], prog_name="barnabas")
    assert done.output.startswith(f"Usage: barnabas {name} ")


@pytest.mark.parametrize("words", ["topic list", "topics lists", "topic lists"])
def test_words_of_a_command_may_have_another_number(words: str) -> None:
    done = CliRunner().invoke(cli, [*words.split(), "--help"], prog_name="barnabas")
    assert done.output.startswith("Usage: barnabas topics list ")
    expected = CliRunner().invoke(cli, ["schema", "topics", "list"])
    assert expected.exit_code == 0
    assert CliRunner().invoke(cli, ["schema", *words.split()]).output == expected.output
