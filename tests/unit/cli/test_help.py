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
