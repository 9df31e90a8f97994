"""`barnabas metadata`: the move of a broker's metadata to ZooKeeper, and its rights there."""

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.arguments import parse_pairs
from barnabas.cli.help import Group
from barnabas.cli.settings import read_properties

if TYPE_CHECKING:
    from barnabas.broker.store.tree import Tree
    from barnabas.config.broker import BrokerConfig

COPIED = ".copied"
"""The suffix of the broker's own metadata directory after the copy."""


_config = click.option(
    "--config",
    "file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The broker's server.properties with zookeeper.connect.",
)
_sets = click.option("-s", "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a key.")


@click.group(cls=Group)
def metadata() -> None:
    """Move the metadata of a broker to ZooKeeper, and protect it there."""


@metadata.command()
@_config
@_sets
def copy(file: Path, sets: tuple[str, ...]) -> None:
    """Move the metadata of a stopped broker to ZooKeeper, so that other brokers can join.

    Topics keep their ids; records, committed offsets and open transactions stay as they are. The
    path in zookeeper.connect must be empty. The metadata directory of the broker is renamed, so
    that there is only one source of the metadata.

    Settings are read as by `barnabas serve`: KAFKA_... variables override the file, and --set
    overrides both.
    """
    from barnabas.broker.cluster.copying import CopyRefused
    from barnabas.broker.store.journal_format import JournalError
    from barnabas.broker.store.metadata_store import StoreError
    from barnabas.config.broker import BrokerConfig
    from barnabas.config.key import ConfigError
    from barnabas.storage.opening.meta_properties import MetaPropertiesError

    try:
        config = BrokerConfig.from_properties(read_properties(file, parse_pairs(sets)))
        if not config.zookeeper_connect:
            raise click.ClickException(f"{file} names no zookeeper.connect to copy to")
        copied = _move(config)
    except (ConfigError, CopyRefused, JournalError, MetaPropertiesError, StoreError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{copied} nodes copied to ZooKeeper: start the broker with this configuration")


@metadata.command()
@_config
@_sets
def protect(file: Path, sets: tuple[str, ...]) -> None:
    """Give all nodes in ZooKeeper the rights that zookeeper.set.acl=true gives to new ones.

    Afterwards only brokers change nodes, and only brokers read passwords and tokens. Run it once
    all brokers have their credentials and zookeeper.set.acl=true; zookeeper-security-migration of
    Kafka 3.9 does the same.
    """
    from barnabas.broker.store.metadata_store import StoreError
    from barnabas.config.broker import BrokerConfig
    from barnabas.config.key import ConfigError

    try:
        config = BrokerConfig.from_properties(read_properties(file, parse_pairs(sets)))
        if not (config.zookeeper_connect and config.zookeeper_set_acl):
            raise click.ClickException(
                f"{file} has to set zookeeper.connect, and zookeeper.set.acl=true with the "
                "credentials of the brokers"
            )
        protected = asyncio.run(_protect(config))
    except (ConfigError, StoreError) as error:
        text = str(error) if isinstance(error, ConfigError) else repr(error)
        raise click.ClickException(text) from error
    click.echo(f"{protected} nodes are protected")


async def _protect(config: "BrokerConfig") -> int:
    from barnabas.broker.store.zookeeper.settings import settings_of
    from barnabas.broker.store.zookeeper.store import open_zookeeper

    store = await open_zookeeper(settings_of(config))
    try:
        return await store.protect()
    finally:
        await store.close()


def _move(config: "BrokerConfig") -> int:
    """Copy the metadata, rename the local directory, and return the number of nodes."""
    from barnabas.broker.store.journal import Journal
    from barnabas.broker.store.opening import METADATA_DIRECTORY
    from barnabas.storage.files.files import OsFiles
    from barnabas.storage.opening.meta_properties import read_meta

    files, first = OsFiles(), Path(config.data_directories[0]).absolute()
    directory = first / METADATA_DIRECTORY
    if not directory.is_dir():
        raise click.ClickException(f"{first} contains no metadata of a broker")
    meta = read_meta(files, str(first))
    if meta is not None and meta.broker_id != config.broker_id:
        # The replica assignments contain the id of the broker.
        raise click.ClickException(
            f"{first} belongs to broker {meta.broker_id}, but the configuration is that of broker "
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
    from barnabas.broker.cluster.copying import copy_metadata
    from barnabas.broker.cluster.internal_topics import in_cluster
    from barnabas.broker.store.zookeeper.settings import settings_of
    from barnabas.broker.store.zookeeper.store import open_zookeeper

    store = await open_zookeeper(settings_of(config))
    try:
        return await copy_metadata(tree, store, partial(in_cluster, config=config))
    finally:
        await store.close()
