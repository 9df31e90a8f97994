"""Configurations in the metadata store, for brokers that no client can reach."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import click

from barnabas.broker.cluster.configs import Configs, Values
from barnabas.broker.cluster.znodes import DEFAULT_ENTITY, ZnodeError
from barnabas.broker.offload import InlineOffload
from barnabas.broker.store.embedded import open_store
from barnabas.broker.store.journal_format import JournalError
from barnabas.broker.store.metadata_store import NoNode, StoreError
from barnabas.broker.store.opening import METADATA_DIRECTORY, OpenedStore
from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import DynamicConfig, overlay
from barnabas.config.group_keys import validate_group_overrides
from barnabas.config.key import ConfigError
from barnabas.config.listeners import parse_listener_key
from barnabas.config.topic import validate_topic_overrides
from barnabas.storage.files.files import OsFiles

T = TypeVar("T")
_ENTITIES = {"topic": "topics", "broker": "brokers", "group": "groups"}
_NO_BROKER = -1


class StoredConfigs(NamedTuple):
    """The configurations in the data directory of a stopped broker, or in ZooKeeper."""

    data: Path | None
    zookeeper: Mapping[str, str]
    """Properties of the session with ZooKeeper, if `data` is None."""

    def read(self, kind: str, name: str) -> Values:
        """Return the stored values; raises ClickException."""
        return self._run(lambda configs: configs.read(*_entity(kind, name)))

    def alter(self, kind: str, name: str, sets: Mapping[str, str], deletes: list[str]) -> None:
        """Set and delete keys, all or none; raises ClickException."""
        entity = _entity(kind, name)
        with _as_click_exceptions():
            _check(kind, sets)

        async def changed(current: Values) -> Values:
            if unset := [key for key in deletes if key not in current]:
                raise click.ClickException(f"not set on {kind} {name}: {', '.join(unset)}")
            kept = {key: value for key, value in current.items() if key not in deletes}
            return {**kept, **sets}

        self._run(lambda configs: configs.alter(*entity, changed))

    def _run(self, work: Callable[[Configs], Awaitable[T]]) -> T:
        async def opened() -> T:
            store = await self._open()
            try:
                broker = DynamicConfig(BrokerConfig())
                return await work(Configs(store.session, broker, _NO_BROKER))
            finally:
                await store.close()

        with _as_click_exceptions():
            return asyncio.run(opened())

    async def _open(self) -> OpenedStore:
        if self.data is None:
            return await _open_zookeeper(self.zookeeper)
        directory = self.data.absolute() / METADATA_DIRECTORY
        if not directory.is_dir():
            raise click.ClickException(
                f"{self.data} contains no metadata of a broker. Give the first directory of "
                "log.dirs; for brokers on ZooKeeper, use --zookeeper"
            )
        try:
            store = await open_store(OsFiles(), str(directory), InlineOffload())
        except BlockingIOError as error:
            raise click.ClickException(
                f"{self.data} is in use: stop the broker first, or change the running one with "
                "--bootstrap-server"
            ) from error
        return OpenedStore(store.session(), store.close)


async def _open_zookeeper(properties: Mapping[str, str]) -> OpenedStore:
    from barnabas.broker.store.zookeeper.settings import settings_of
    from barnabas.broker.store.zookeeper.store import open_zookeeper

    known = {key: text for key, text in properties.items() if key in BrokerConfig.KEYS}
    store = await open_zookeeper(settings_of(BrokerConfig(**BrokerConfig.parse(known))))
    return OpenedStore(store, store.close)


def _entity(kind: str, name: str) -> tuple[str, str]:
    if kind not in _ENTITIES:
        raise click.UsageError(f"the metadata store has no configuration of a {kind}")
    if not name and kind != "broker":
        raise click.UsageError(f"give the name of the {kind}")
    return _ENTITIES[kind], name or DEFAULT_ENTITY


def _check(kind: str, sets: Mapping[str, str]) -> None:
    """Raise ConfigError for a value that AlterConfigs would refuse."""
    if kind == "topic":
        validate_topic_overrides(sets, BrokerConfig())
    elif kind == "group":
        validate_group_overrides(sets)
    else:
        # The listeners are in the broker's file: their keys are checked as those of the broker.
        for name, text in sets.items():
            own = parse_listener_key(name)
            overlay(BrokerConfig(), {name if own is None else own.key: text}, {})


@contextmanager
def _as_click_exceptions() -> Iterator[None]:
    try:
        yield
    except NoNode as error:
        raise click.ClickException(f"not in the metadata store: {error.path}") from error
    except StoreError as error:
        raise click.ClickException(f"the metadata store failed: {error!r}") from error
    except (ConfigError, JournalError, ZnodeError) as error:
        raise click.ClickException(str(error)) from error
