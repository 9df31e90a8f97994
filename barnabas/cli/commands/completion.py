"""`barnabas completion`: the completion script that click generates for a shell."""

import click
from click.shell_completion import get_completion_class

from barnabas.cli.help import Command


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script with which a shell completes commands, options and names."""
    from barnabas.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "barnabas", "_BARNABAS_COMPLETE").source())
