"""The commands of `barnabas` that do something by themselves, by their words."""

from collections.abc import Iterator
from typing import Final

import click

from barnabas.cli.main import cli


def _walk(
    command: click.Command, context: click.Context
) -> Iterator[tuple[str, tuple[click.Command, click.Context]]]:
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield context.command_path.partition(" ")[2], (command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _walk(found, click.Context(found, info_name=name, parent=context))


COMMANDS: Final = dict(_walk(cli, click.Context(cli, info_name="barnabas")))


def options(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}
