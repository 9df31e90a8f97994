"""`barnabas cluster`: several brokers on this machine, for development."""

import os
from pathlib import Path

import click

from barnabas.cli.arguments import parse_pairs
from barnabas.cli.settings import (
    DEFAULT_LISTENER,
    LOG_LEVELS,
    default_data_directory,
    secure_options,
    secured,
)

FIRST_ID = 1
REPLICAS = 3


@click.group()
def cluster() -> None:
    """Run several brokers on this machine."""


@cluster.command()
@click.option(
    "-n",
    "--brokers",
    default=3,
    show_default=True,
    type=click.IntRange(1),
    help="Number of brokers.",
)
@click.option(
    "-l",
    "--listen",
    default=DEFAULT_LISTENER,
    show_default=True,
    metavar="HOST:PORT",
    help="Address of the first broker; the others get the next ports. Port 0: any free ports.",
)
@click.option("-d", "--data", type=click.Path(path_type=Path), help="Log directory (log.dirs).")
@click.option("-s", "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a key.")
@secure_options
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    default="warn",
    show_default=True,
    help="Level of the log.",
)
def up(
    brokers: int,
    listen: str,
    data: Path | None,
    sets: tuple[str, ...],
    secure: bool,
    secure_directory: Path | None,
    log_level: str,
) -> None:
    """Run a cluster until Ctrl-C; the next run starts with the same data.

    Topics have three replicas and min.insync.replicas=2. A broker that dies is started again.
    --secure is as for `barnabas serve`.
    """
    from barnabas.cli.processes.supervisor import run_brokers
    from barnabas.config.key import ConfigError
    from barnabas.config.properties import cluster_id

    properties = {
        "log.dirs": str(data or default_data_directory() / "cluster"),
        "listeners": f"PLAINTEXT://{listen}",
        "min.insync.replicas": str(min(2, brokers)),
        **parse_pairs(sets),
    }
    if "node.id" not in properties:
        properties.setdefault("broker.id", str(FIRST_ID))
    try:
        made = secured(properties, secure, secure_directory, several=True)
        properties = properties if made is None else made.properties
        run_brokers(
            properties,
            brokers,
            replicas=min(REPLICAS, brokers),
            strict=True,
            log_level=log_level,
            cluster_id=cluster_id(os.environ),
            secured=made,
        )
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
