"""Dynamic configuration: the nodes under /config, and the parts of this broker that use them.

A change is one transaction: the values, and a sequential node under /config/changes that makes
every broker read them again. The broker that makes the change responds after it has applied the
values itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.notifications import Notifications
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
    Op,
    SetData,
    WatchHandle,
)
from barnabas.config.dynamic import DynamicConfig, inert
from barnabas.config.key import ConfigError
from barnabas.config.topic import SAFE_VALUES, TopicConfig, readable_overrides

Values = dict[str, str]
Change = Callable[[Values], Awaitable[Values]]
TopicFollower = Callable[[str, TopicConfig], None]
Follower = Callable[[str | None], Awaitable[None]]
"""A function that reads an entity again; all entities of its kind, if the name is None."""
_TOPICS_PER_YIELD: Final = 50
_READ_AT_ONCE: Final = 64
_NOTHING: Mapping[str, str] = MappingProxyType({})
_log = get_logger(__name__)


class Configs:
    """The configurations that this broker uses: its own, and those of its topics."""

    def __init__(
        self,
        store: MetadataStore,
        broker: DynamicConfig,
        broker_id: int,
        passwords: StoredPasswords,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self.broker = broker
        self.passwords = passwords
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._topics: dict[str, TopicConfig] = {}
        self._outdated: dict[str, TopicConfig] = {}
        """The topics whose followers have to be told that the broker's values changed."""
        self._refusals: dict[str, list[str]] = {}
        self._followers: list[TopicFollower] = []
        self._kinds: dict[str, Follower] = {}
        self._entity_kinds: dict[str, Follower] = {}
        self._watching: WatchHandle | None = None
        self._changes = Notifications(store, znodes.CONFIG_CHANGE)
        broker.subscribe(lambda _config: self._broker_changed())

    async def start(self, on_change: Callable[[], None]) -> None:
        """Read the broker's own configuration. `on_change` is called when `catch_up` should be
        awaited."""
        self._watching = self._changes.watch(on_change)
        self._changes.all_applied(await self._changes.names())
        own = ("brokers", str(self._broker_id))
        await self._apply(*own)
        if self.passwords.outdated:
            await self.alter(*own, _unchanged)

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

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
        self._kinds[kind] = follower

    def follow_entities(self, kind: str, follower: Follower) -> None:
        """Do what `follow` does, with paths below /config for names, as `users/u/clients/c`."""
        self._entity_kinds[kind] = follower

    async def entities(self, kind: str) -> list[str]:
        """Return the paths below /config of all entities of a kind, also of users' clients."""
        found = []
        for node in await self._store.children(f"{znodes.CONFIG}/{kind}"):
            found.append(f"{kind}/{node}")
            if kind == "users":
                clients = f"{kind}/{node}/clients"
                with suppress(NoNode):
                    nodes = await self._store.children(f"{znodes.CONFIG}/{clients}")
                    found += [f"{clients}/{each}" for each in nodes]
        return found

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
        return [name for node in nodes if (name := _name(kind, node)) is not None]

    async def readable(self, kind: str, names: Sequence[str]) -> dict[str, Values | None]:
        """Return the values of entities as they are stored; None if they cannot be read."""
        found: dict[str, Values | None] = {}
        for first in range(0, len(names), _READ_AT_ONCE):
            some = names[first : first + _READ_AT_ONCE]
            values = await asyncio.gather(*(self._readable(kind, name) for name in some))
            found.update(zip(some, values, strict=True))
        return found

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

        entity = znodes.config_entity(kind, name)
        await self._alter(entity, changed, is_there=kind == "topics")
        await self._apply(kind, name)
        await self._tell(kind, entity)

    async def alter_entity(self, entity: str, change: Change) -> None:
        """Do what `alter` does, for an entity that its path below /config names."""
        await self._alter(entity, change)
        await self._apply_entity(entity)

    async def _alter(self, entity: str, change: Change, *, is_there: bool = False) -> None:
        path = f"{znodes.CONFIG}/{entity}"
        notice = Create(znodes.CONFIG_CHANGE, znodes.encode_config_change(entity), sequence=True)
        while True:
            try:
                data, stat = await self._store.get(path)
                stored, version = znodes.decode_config(data), stat.version
            except NoNode:
                if is_there:
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

    async def catch_up(self) -> None:
        """Apply the changes that other brokers have made since the last call.

        A call that was interrupted, by the loss of the store for example, can be repeated.
        """
        changes = await self._changes.names()
        unapplied = self._changes.unapplied(changes)
        if unapplied is None:
            # This broker was away for longer than notifications are kept.
            await self._apply_all()
            self._changes.all_applied(changes)
        else:
            for path in unapplied:
                await self._apply_change(path)
                self._changes.applied(path)
        await self._changes.delete_old(changes)

    async def _apply_change(self, path: str) -> None:
        try:
            data, _ = await self._store.get(path)
            changed = znodes.decode_config_change(data)
        except NoNode:
            return
        except ZnodeError as error:
            # The notification is in the format of another version: read everything.
            _log.error("configuration change unreadable", path=path, reason=str(error))
            await self._apply_all()
            return
        await self._apply_entity(changed)

    async def _apply_entity(self, entity: str) -> None:
        kind, _, node = entity.partition("/")
        name = _name(kind, node)
        if name is not None:
            await self._apply(kind, name)
        await self._tell(kind, entity)

    async def _tell(self, kind: str, entity: str) -> None:
        if kind in self._entity_kinds:
            await self._entity_kinds[kind](entity)

    def _complain(self, name: str, refusals: list[str]) -> None:
        """Log refused overrides once, however often they are read."""
        if refusals and refusals != self._refusals.get(name):
            _log.error("topic configuration refused", topic=name, reasons=refusals)
        if refusals:
            self._refusals[name] = refusals
        else:
            self._refusals.pop(name, None)

    async def _apply_all(self) -> None:
        await self._apply("brokers", str(self._broker_id))
        for name in {*self._topics, *self._overrides}:
            await self._apply("topics", name)
        for follower in (*self._kinds.values(), *self._entity_kinds.values()):
            await follower(None)

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
        elif kind in self._kinds:
            await self._kinds[kind](name)

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


async def _unchanged(values: Values) -> Values:
    return values


def _name(kind: str, node: str) -> str | None:
    """Return the entity of a node; None for the default user, a user's client, and for a node that
    neither we nor Kafka would write."""
    name = znodes.config_name(node)
    return name if znodes.config_node(kind, name) == node else None
