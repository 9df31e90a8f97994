"""`--secure` of the commands that run brokers, and `barnabas secure`, which makes its files."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.help import Command
from barnabas.cli.settings import Command as Decorated

if TYPE_CHECKING:
    from barnabas.cli.processes.secure import Secured


@click.command(cls=Command)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    required=True,
    help="Name or address of a broker; a certificate may have *.DOMAIN.",
)
def secure(directory: Path, hosts: tuple[str, ...]) -> None:
    """Make an authority, a certificate for brokers, and the password of the user admin.

    Give all files but ca.key to the brokers, and start them with `--secure-directory`. With the key
    a certificate can be made anew: run the command again.
    """
    from barnabas.cli.processes.secure import make_files

    make_files(directory, hosts)
    click.echo(f"{directory} has the files of --secure; keep ca.key away from brokers.")


def secure_options(command: Decorated) -> Decorated:
    """Add --secure and --secure-directory to a command that runs brokers."""
    command = click.option(
        "--secure-directory",
        type=click.Path(file_okay=False, path_type=Path),
        help="--secure, with its files in this directory [secure, in the log directory].",
    )(command)
    return click.option(
        "--secure",
        is_flag=True,
        help="Serve by TLS, to users with passwords, under access control rules.",
    )(command)


def secured(
    properties: Mapping[str, str], secure: bool, directory: Path | None, *, several: bool
) -> "Secured | None":
    """Return what `secure_options` ask for; None without them. Raises ConfigError and
    ClickException."""
    if not secure and directory is None:
        return None
    # Imported here: a broker without it starts faster.
    from barnabas.cli.processes.secure import make_secure

    return make_secure(properties, directory, several=several)
