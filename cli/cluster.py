"""`barnabas cluster`: several brokers on this machine, for development."""

import os
from pathlib import Path

import click

from barnabas.cli.arguments import parse_pairs
from barnabas.cli.serve import LOG_LEVELS
from barnabas.cli.settings import DEFAULT_LISTENER, default_data_directory

FIRST_ID = 1


@click.group()
def cluster() -> None:
    """Run several brokers on this machine."""


@cluster.command()
@click.option("-n", "--brokers", default=3, show_default=True, type=click.IntRange(1))
@click.option(
    "-l",
    "--listen",
    default=DEFAULT_LISTENER,
    show_default=True,
    metavar="HOST:PORT",
    help="Address of the first broker; the others have the ports behind it. Port 0: any.",
)
@click.option("-d", "--data", type=click.Path(path_type=Path), help="Directory of the data.")
@click.option("-s", "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a key.")
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    default="warn",
    show_default=True,
)
def up(brokers: int, listen: str, data: Path | None, sets: tuple[str, ...], log_level: str) -> None:
    """Run a cluster until Ctrl-C; its data stay, and the next run finds them.

    Topics have three replicas, of which two must be in sync. A broker that dies is started again.
    """
    from barnabas.cli.supervisor import run_several
    from barnabas.config.key import ConfigError
    from barnabas.config.properties import cluster_id

    properties = {
        "log.dirs": str(data or default_data_directory() / "cluster"),
        "listeners": f"PLAINTEXT://{listen}",
        "default.replication.factor": str(min(3, brokers)),
        "min.insync.replicas": str(min(2, brokers)),
        **parse_pairs(sets),
    }
    if "node.id" not in properties:
        properties.setdefault("broker.id", str(FIRST_ID))
    try:
        run_several(
            properties,
            brokers,
            strict=True,
            log_level=log_level,
            cluster_id=cluster_id(os.environ),
        )
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
