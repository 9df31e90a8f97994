"""`barnabas secure`: the files of `--secure`, for brokers on several hosts."""

from pathlib import Path

import click

from barnabas.cli.help import Command


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
