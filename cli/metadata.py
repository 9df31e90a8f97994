"""`barnabas metadata`: where a cluster's metadata are kept."""

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.arguments import parse_pairs
from barnabas.cli.settings import read_properties

if TYPE_CHECKING:
    from barnabas.broker.metadata.tree import Tree
    from barnabas.config.broker import BrokerConfig

COPIED = ".copied"
"""Appended to the name of a broker's own metadata once they are elsewhere."""


@click.group()
def metadata() -> None:
    """Where a cluster's metadata are kept."""


@metadata.command()
@click.option(
    "--config",
    "file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The broker's server.properties, with zookeeper.connect in it.",
)
@click.option("-s", "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a key.")
def copy(file: Path, sets: tuple[str, ...]) -> None:
    """Move a stopped broker's metadata to ZooKeeper, so that others can join it.

    Topics keep their ids, and the broker its records, committed offsets and open transactions.
    The path in zookeeper.connect must be empty. What the broker had itself is renamed, since two
    truths about one cluster are none.

    Settings come from where `barnabas serve` takes them: KAFKA_... variables win over the file, and
    --set over both.
    """
    from barnabas.broker.metadata.copying import CopyRefused
    from barnabas.broker.metadata.journal_format import JournalError
    from barnabas.broker.metadata.store import StoreError
    from barnabas.config.broker import BrokerConfig
    from barnabas.config.key import ConfigError
    from barnabas.storage.meta_properties import MetaPropertiesError

    properties = read_properties(file, parse_pairs(sets))
    try:
        config = BrokerConfig.from_properties(properties)
        if not config.zookeeper_connect:
            raise click.ClickException(f"{file} names no zookeeper.connect to copy to")
        copied = _move(config)
    except (ConfigError, CopyRefused, JournalError, MetaPropertiesError, StoreError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{copied} nodes are on ZooKeeper now: start the broker with this configuration")


def _move(config: "BrokerConfig") -> int:
    """The number of nodes."""
    from barnabas.broker.metadata.journal import Journal
    from barnabas.broker.metadata.opening import METADATA_DIRECTORY
    from barnabas.storage.files import OsFiles
    from barnabas.storage.meta_properties import read_meta

    files, first = OsFiles(), Path(config.data_directories[0]).absolute()
    directory = first / METADATA_DIRECTORY
    if not directory.is_dir():
        raise click.ClickException(f"{first} holds no metadata of a broker")
    meta = read_meta(files, str(first))
    if meta is not None and meta.broker_id != config.broker_id:
        # The assignments of its topics name the broker by its id.
        raise click.ClickException(
            f"{first} belongs to broker {meta.broker_id}, and this is the configuration of broker "
            f"{config.broker_id}"
        )
    journal = Journal(files, str(directory))
    try:
        copied = asyncio.run(_to_zookeeper(config, journal.load()))
        files.rename(str(directory), f"{directory}{COPIED}")
        files.sync_dir(str(first))
    except BlockingIOError as error:
        raise click.ClickException(f"{first} is in use: stop the broker first") from error
    finally:
        journal.close()
    return copied


async def _to_zookeeper(config: "BrokerConfig", tree: "Tree") -> int:
    from barnabas.broker.controller.internal_topics import in_cluster
    from barnabas.broker.metadata.copying import copy_metadata
    from barnabas.broker.metadata.zookeeper.settings import settings_of
    from barnabas.broker.metadata.zookeeper.store import open_zookeeper

    store = await open_zookeeper(settings_of(config))
    try:
        return await copy_metadata(tree, store, partial(in_cluster, config=config))
    finally:
        await store.close()
