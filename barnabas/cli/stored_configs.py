"""Configurations in the metadata store, for brokers that no client can reach."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import click

from barnabas.broker.cluster.configs import Configs, Values
from barnabas.broker.cluster.stored_passwords import StoredPasswords, is_password
from barnabas.broker.cluster.znodes import DEFAULT_ENTITY, ZnodeError
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.store.embedded import open_store
from barnabas.broker.store.journal_format import JournalError
from barnabas.broker.store.metadata_store import MetadataStore, NoNode, StoreError
from barnabas.broker.store.opening import METADATA_DIRECTORY, OpenedStore
from barnabas.config.broker import BrokerConfig
from barnabas.config.dynamic import DynamicConfig, overlay
from barnabas.config.group_keys import validate_group_overrides
from barnabas.config.key import HIDDEN, ConfigError
from barnabas.config.listeners import parse_listener_key
from barnabas.config.password_keys import PasswordEncoderKeys
from barnabas.config.topic import validate_topic_overrides
from barnabas.storage.files.files import OsFiles, make_dirs

T = TypeVar("T")
_ENTITIES = {"topic": "topics", "broker": "brokers", "group": "groups"}
_NO_BROKER = -1
_NOTHING: Mapping[str, str] = MappingProxyType({})


class StoredConfigs(NamedTuple):
    """The configurations in the data directory of a stopped broker, or in ZooKeeper."""

    data: Path | None
    zookeeper: Mapping[str, str]
    """Properties of the session with ZooKeeper, if `data` is None."""

    def read(self, kind: str, name: str) -> Values:
        """Return the stored values, passwords hidden; raises ClickException."""
        stored = self._run(lambda configs: configs.stored(*_entity(kind, name)))
        return {key: HIDDEN if is_password(key) else text for key, text in stored.items()}

    def alter(self, kind: str, name: str, sets: Mapping[str, str], deletes: list[str]) -> None:
        """Set and delete keys, all or none; raises ClickException.

        Keys of the encryption of passwords are used for it, as by Kafka's tool, and not stored.
        """
        entity = _entity(kind, name)
        encoder = {key: text for key, text in sets.items() if key in PasswordEncoderKeys.KEYS}
        sets = {key: text for key, text in sets.items() if key not in encoder}
        with _as_click_exceptions():
            _check(kind, name, sets)

        async def changed(current: Values) -> Values:
            if unset := [key for key in deletes if key not in current]:
                raise click.ClickException(f"not set on {kind} {name}: {', '.join(unset)}")
            kept = {key: value for key, value in current.items() if key not in deletes}
            return {**kept, **sets}

        self._run(lambda configs: configs.alter(*entity, changed), encoder)

    def manage_users(self, work: Callable[[MetadataStore], Awaitable[T]]) -> T:
        """Run `work` with the store, also with that of a broker before its first start (KIP-900).

        Raises ClickException.
        """

        async def opened() -> T:
            store = await self._open(new=True)
            try:
                return await work(store.session)
            finally:
                await store.close()

        with _as_click_exceptions():
            return asyncio.run(opened())

    def _run(
        self, work: Callable[[Configs], Awaitable[T]], encoder: Mapping[str, str] = _NOTHING
    ) -> T:
        async def opened() -> T:
            config = _known_config({**self.zookeeper, **encoder})
            store = await self._open()
            try:
                passwords = StoredPasswords(config, InlineOffload())
                broker = DynamicConfig(BrokerConfig())
                return await work(Configs(store.session, broker, _NO_BROKER, passwords))
            finally:
                await store.close()

        with _as_click_exceptions():
            return asyncio.run(opened())

    async def _open(self, *, new: bool = False) -> OpenedStore:
        if self.data is None:
            return await _open_zookeeper(self.zookeeper)
        directory = self.data.absolute() / METADATA_DIRECTORY
        if new:
            make_dirs(OsFiles(), str(self.data.absolute()))
        elif not directory.is_dir():
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

    store = await open_zookeeper(settings_of(_known_config(properties)))
    return OpenedStore(store, store.close)


def _known_config(properties: Mapping[str, str]) -> BrokerConfig:
    known = {key: text for key, text in properties.items() if key in BrokerConfig.KEYS}
    return BrokerConfig(**BrokerConfig.parse(known))


def _entity(kind: str, name: str) -> tuple[str, str]:
    if kind not in _ENTITIES:
        raise click.UsageError(f"the metadata store has no configuration of a {kind}")
    if not name and kind != "broker":
        raise click.UsageError(f"give the name of the {kind}")
    return _ENTITIES[kind], name or DEFAULT_ENTITY


def _check(kind: str, name: str, sets: Mapping[str, str]) -> None:
    """Raise ConfigError for a value that AlterConfigs would refuse."""
    if kind == "topic":
        validate_topic_overrides(sets, BrokerConfig())
    elif kind == "group":
        validate_group_overrides(sets, BrokerConfig())
    else:
        for key, text in sets.items():
            layers: list[dict[str, str]] = [{}, {key: text}] if name else [{key: text}, {}]
            overlay(_with_listener_of(key), *layers)


def _with_listener_of(key: str) -> BrokerConfig:
    """Return a configuration with the listener of a key: that of the broker is in its file."""
    own = parse_listener_key(key)
    if own is None:
        return BrokerConfig()
    return BrokerConfig(
        listeners=(f"{own.listener}://:0",),
        listener_security_protocol_map=(f"{own.listener}:PLAINTEXT",),
        inter_broker_listener_name=own.listener,
    )


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
