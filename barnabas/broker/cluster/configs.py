"""Dynamic configuration: the nodes under /config, and the parts of this broker that use them.

A change is one transaction: the values, and a sequential node under /config/changes that makes
every broker read them again. The broker that makes the change responds after it has applied the
values itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Final

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.followed_nodes import FollowedNodes, read_all
from barnabas.broker.cluster.registration import catch_up_with_all
from barnabas.broker.cluster.stored_passwords import StoredPasswords
from barnabas.broker.cluster.znodes import ZnodeError
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.store.metadata_store import (
    BadVersion,
    Create,
    MetadataStore,
    NodeExists,
    NoNode,
    NotAllowed,
    Op,
    SetData,
)
from barnabas.config.dynamic import DynamicConfig, inert
from barnabas.config.key import ConfigError
from barnabas.config.topic import SAFE_VALUES, TopicConfig, readable_overrides

Values = dict[str, str]
Change = Callable[[Values], Awaitable[Values]]
TopicFollower = Callable[[str, TopicConfig], None]
Follower = Callable[[str | None], Awaitable[None]]
"""A function that reads an entity again, by its path below /config; all of its kind, if None."""
_TOPICS_PER_YIELD: Final = 50
_NOTHING: Mapping[str, str] = MappingProxyType({})
_log = get_logger(__name__)


class Configs(FollowedNodes[str]):
    """The configurations that this broker uses: its own, and those of its topics."""

    def __init__(
        self,
        store: MetadataStore,
        broker: DynamicConfig,
        broker_id: int,
        passwords: StoredPasswords,
    ) -> None:
        super().__init__(store, {znodes.CONFIG_CHANGE: znodes.decode_config_change})
        self._broker_id = broker_id
        self.broker = broker
        self.passwords = passwords
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._topics: dict[str, TopicConfig] = {}
        self._outdated: dict[str, TopicConfig] = {}
        """The topics whose followers have to be told that the broker's values changed."""
        self._refusals: dict[str, list[str]] = {}
        self._followers: list[TopicFollower] = []
        self._kinds: dict[str, list[Follower]] = {}
        broker.subscribe(lambda _config: self._broker_changed())

    async def start(self, on_change: Callable[[], None]) -> None:
        """Read the broker's own configuration. `on_change` is called when `catch_up` should be
        awaited."""
        await super().start(on_change)
        if self.passwords.outdated:
            await self.alter("brokers", str(self._broker_id), _unchanged)

    def topic(self, name: str) -> TopicConfig:
        """Return the configuration of a topic with a replica on this broker."""
        config = self._topics.get(name)
        if config is None:
            overrides = self._overrides.get(name, _NOTHING)
            config = self._topics[name] = TopicConfig.resolve(overrides, self.broker.current)
        return config

    def follow_topics(self, follower: TopicFollower) -> None:
        """Call back with the topic's name after its configuration has changed."""
        self._followers.append(follower)

    def follow(self, kind: str, follower: Follower) -> None:
        """Await a function after a change of an entity, and when changes may have been missed."""
        self._kinds.setdefault(kind, []).append(follower)

    async def entities(self, kind: str) -> list[str]:
        """Return the paths below /config of all entities of a kind, also of users' clients."""
        found = await self._below(kind)
        if kind == "users":
            clients = [f"{user}/clients" for user in found]
            found += [each async for _, below in read_all(clients, self._below) for each in below]
        return found

    async def _below(self, path: str) -> list[str]:
        with suppress(NoNode):
            return [
                f"{path}/{node}" for node in await self._store.children(f"{znodes.CONFIG}/{path}")
            ]
        return []

    async def stored_entity(self, entity: str) -> Values:
        """Return the values of an entity that its path below /config names. Raises ZnodeError."""
        try:
            data, _ = await self._store.get(f"{znodes.CONFIG}/{entity}")
        except NoNode:
            return {}
        return znodes.decode_config(data)

    async def load_topics(self, names: Iterable[str]) -> None:
        """Read the configurations of topics whose replicas are assigned to this broker.

        The controller may announce a topic before this session's reads see it, and a creation makes
        no change notification: a value that is read too early would stay until the next start.
        """
        await catch_up_with_all(self._store)
        for number, name in enumerate(names, 1):
            self._overrides.setdefault(name, _NOTHING)
            await self._apply("topics", name)
            if number % _TOPICS_PER_YIELD == 0:
                # The embedded store answers at once: let the event loop run other work.
                await asyncio.sleep(0)

    def forget_topic(self, name: str) -> None:
        """Drop the configuration of a topic whose replicas were deleted."""
        self._overrides.pop(name, None)
        self._topics.pop(name, None)
        self._outdated.pop(name, None)
        self._refusals.pop(name, None)

    async def overrides(self, name: str) -> Mapping[str, str]:
        """Return the valid overrides of a topic, which need not have a replica here.

        If the stored ones cannot be read, return the previous ones; if there are none, values that
        delete no records.
        """
        try:
            stored = await self.read("topics", name)
        except ZnodeError as error:
            before = self._overrides.get(name, _NOTHING)
            self._complain(name, [str(error)])
            return SAFE_VALUES if before is _NOTHING else before
        known, refusals = readable_overrides(stored, self._overrides.get(name, _NOTHING))
        self._complain(name, refusals)
        return known

    async def read(self, kind: str, name: str) -> dict[str, str]:
        """Return the values of an entity, passwords in the clear. Raises ZnodeError."""
        stored = await self.stored(kind, name)
        return await self.passwords.revealed(stored) if kind == "brokers" else stored

    async def stored(self, kind: str, name: str) -> Values:
        """Return the values of an entity, passwords as they are stored. Raises ZnodeError."""
        return await self.stored_entity(znodes.config_entity(kind, name))

    async def names(self, kind: str) -> list[str]:
        """Return the entities of a kind with stored values, readable or not."""
        stored = await self.readable(kind, await self.nodes(kind))
        return [name for name, values in stored.items() if values is None or values]

    async def nodes(self, kind: str) -> list[str]:
        """Return the entities of a kind that have a node, with values or without."""
        nodes = await self._store.children(f"{znodes.CONFIG}/{kind}")
        return [name for node in nodes if (name := entity_name(f"{kind}/{node}")) is not None]

    async def readable(self, kind: str, names: Sequence[str]) -> dict[str, Values | None]:
        """Return the values of entities as they are stored; None if they cannot be read."""
        return {
            name: values async for name, values in read_all(names, partial(self._readable, kind))
        }

    async def _readable(self, kind: str, name: str) -> Values | None:
        try:
            return await self.stored(kind, name)
        except ZnodeError:
            return None

    async def alter(self, kind: str, name: str, change: Change) -> None:
        """Replace the stored values with the result of `change`, and apply them on this broker.

        Raises the errors of `change`, NoNode if the topic is gone, ZnodeError, and ConfigError
        for a password that cannot be encrypted.
        """

        async def changed(stored: Values) -> Values:
            if kind != "brokers":
                return await change(stored)
            values = await change(await self.passwords.revealed(stored, keep_unreadable=True))
            return await self.passwords.concealed(values, stored)

        await self.alter_entity(znodes.config_entity(kind, name), changed)

    async def alter_entity(self, entity: str, change: Change) -> None:
        """Do what `alter` does, for an entity that its path below /config names; passwords are
        left as they are stored."""
        await self._alter(entity, change)
        await self._apply_entity(entity)

    async def _alter(self, entity: str, change: Change) -> None:
        path = f"{znodes.CONFIG}/{entity}"
        notice = Create(znodes.CONFIG_CHANGE, znodes.encode_config_change(entity), sequence=True)
        while True:
            try:
                data, stat = await self._store.get(path)
                stored, version = znodes.decode_config(data), stat.version
            except NoNode:
                if entity.startswith("topics/"):
                    raise
                stored, version = {}, None
            text = znodes.encode_config(await change(stored))
            writes: list[Op]
            if version is None:
                writes = [*await self._missing_above(entity), Create(path, text)]
            else:
                writes = [SetData(path, text, version)]
            with suppress(BadVersion, NodeExists):
                await self._store.multi([*writes, notice])
                return

    async def _missing_above(self, entity: str) -> list[Op]:
        """Return the creation of the nodes that the node of an entity needs: those of a user's
        clients are below the user's."""
        missing: list[Op] = []
        parts = entity.split("/")
        for length in range(2, len(parts)):
            path = "/".join([znodes.CONFIG, *parts[:length]])
            try:
                await self._store.get(path)
            except NoNode:
                missing.append(Create(path, znodes.encode_config({})))
        return missing

    async def _read(self, keys: Sequence[str]) -> None:
        for entity in keys:
            await self._apply_entity(entity)

    async def _load(self) -> None:
        await self._apply("brokers", str(self._broker_id))
        for name in {*self._topics, *self._overrides}:
            await self._apply("topics", name)
        for followers in self._kinds.values():
            for follower in followers:
                await follower(None)

    async def _apply_entity(self, entity: str) -> None:
        kind, name = entity.partition("/")[0], entity_name(entity)
        if name is not None:
            await self._apply(kind, name)
        for follower in self._kinds.get(kind, ()):
            await follower(entity)

    def _complain(self, name: str, refusals: list[str]) -> None:
        """Log refused overrides once, however often they are read."""
        if refusals and refusals != self._refusals.get(name):
            _log.error("topic configuration refused", topic=name, reasons=refusals)
        if refusals:
            self._refusals[name] = refusals
        else:
            self._refusals.pop(name, None)

    async def _apply(self, kind: str, name: str) -> None:
        if kind == "brokers" and name in (str(self._broker_id), znodes.DEFAULT_ENTITY):
            before = inert(self.broker.stored)
            try:
                self.broker.apply(
                    cluster_defaults=await self.read(kind, znodes.DEFAULT_ENTITY),
                    overrides=await self.read(kind, str(self._broker_id)),
                )
            except (ConfigError, ZnodeError) as error:
                # Another version of the broker wrote this value; the previous configuration stays.
                _log.error("dynamic broker configuration refused", reason=str(error))
            if (found := inert(self.broker.stored)) and found != before:
                _log.warning("keys without effect are stored", keys=found)
            await self._notify_outdated()
        elif kind == "topics":
            self._topic_changed(name, await self.overrides(name))

    def _topic_changed(self, name: str, overrides: Mapping[str, str]) -> None:
        before = self._overrides.get(name, _NOTHING)
        self._overrides[name] = overrides
        if overrides != before:
            self._topics.pop(name, None)
            self._notify(name)

    def _broker_changed(self) -> None:
        self._outdated |= self._topics
        self._topics.clear()

    async def _notify_outdated(self) -> None:
        number = 0
        while self._outdated:
            name, _ = self._outdated.popitem()
            self._notify(name)
            number += 1
            if number % _TOPICS_PER_YIELD == 0:
                await asyncio.sleep(0)

    def _notify(self, name: str) -> None:
        config = self.topic(name)
        for follower in self._followers:
            follower(name, config)


class FollowedEntities:
    """The entities of some kinds that this broker follows, by their paths below /config.

    If the values of one cannot be read, its last ones stay.
    """

    def __init__(
        self, configs: Configs, kinds: Sequence[str], install: Callable[[str, Values], None]
    ) -> None:
        """`install` puts the values of an entity in force, which has none if it is gone."""
        self._configs = configs
        self._kinds = kinds
        self._install = install
        self._known: set[str] = set()

    async def start(self) -> None:
        """Read all entities, and follow their changes. Raises StoreError."""
        for kind in self._kinds:
            self._configs.follow(kind, self.changed)
        await self.changed(None)

    async def changed(self, path: str | None) -> None:
        """Read an entity again, or all if `path` is None."""
        if path is None:
            paths = [each for kind in self._kinds for each in await self._configs.entities(kind)]
            for gone in self._known.difference(paths):
                self._install(gone, {})
        else:
            paths = [path]
        async for _ in read_all(paths, self._read):
            pass

    async def _read(self, path: str) -> None:
        try:
            values = await self._configs.stored_entity(path)
        except (ZnodeError, NotAllowed) as error:
            _log.error("entity unreadable, its last values stay", path=path, reason=repr(error))
            return
        # Nothing is awaited after the read, so a later change is installed later.
        (self._known.add if values else self._known.discard)(path)
        self._install(path, values)


async def _unchanged(values: Values) -> Values:
    return values


def entity_name(entity: str) -> str | None:
    """Return the name of an entity that its path below /config names; None for the default user, a
    user's client, and for a node that neither we nor Kafka would write."""
    kind, _, node = entity.partition("/")
    name = znodes.config_name(node)
    return name if znodes.config_node(kind, name) == node else None
