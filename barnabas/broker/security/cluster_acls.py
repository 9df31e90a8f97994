"""The access control rules of the cluster: every broker follows them in the metadata store.

A change is one transaction: the rules of a resource pattern, and a notification that makes every
broker read them again. The broker that makes it responds after it has applied the rules itself.
While the store is away, the last rules stay in force.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, TypeVar

from barnabas.broker.cluster import acl_znodes
from barnabas.broker.cluster.followed_nodes import FollowedNodes, read_all
from barnabas.broker.cluster.registration import missing_nodes
from barnabas.broker.cluster.znodes import ZnodeError
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.store.metadata_store import (
    BadVersion,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    NotAllowed,
    Op,
    SetData,
    TooLarge,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.schema import MAX_REQUEST_ELEMENTS
from barnabas.security.acl.matcher import RuleSet, Unreadable, rule_bytes
from barnabas.security.acl.rules import (
    RESOURCE_TYPES,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    PatternType,
    ResourcePattern,
    ResourceType,
)

RULES_IN_A_STEP = 250
"""Rules that are decoded, indexed or compared before other work of the event loop has its turn."""
FILTERS_IN_A_STEP = 16
"""Filters that are compared with few rules, likewise."""
MAX_BYTES: Final = 4 << 20
"""Bytes of all rules, some 25,000: no more are created. Kafka has no limit."""
MAX_DELETED: Final = MAX_REQUEST_ELEMENTS
"""Rules that one DeleteAcls may name in its response, one that two filters match twice."""
PATTERNS_AT_ONCE: Final = 32
"""Patterns whose rules are changed in one transaction."""
OBJECTS_OF_A_RULE: Final = 10
"""Objects of a rule that the garbage collector walks over; none is in a cycle."""
Entries = tuple[AccessControlEntry, ...]
Change = Callable[[Entries], Awaitable[Entries]]
Pause = Callable[[], Awaitable[None]]
"""A function that lets other work of the event loop run."""
T = TypeVar("T")
_DECODERS: Final = {
    acl_znodes.change_path(how): partial(acl_znodes.decode_change, how)
    for how in acl_znodes.CHANGES
}
_log = get_logger(__name__)


class AclError(NamedTuple):
    """The reason why a rule was not created or not deleted."""

    code: ErrorCode
    message: str


TOO_MANY: Final = AclError(
    ErrorCode.POLICY_VIOLATION, "There are too many rules: delete some of them."
)


class DeletedAcl(NamedTuple):
    """A rule that a filter matched; `error` if it was not deleted."""

    rule: AclBinding
    error: AclError | None


class ClusterAcls(FollowedNodes[ResourcePattern]):
    """The rules of the cluster: those in force on this broker, and changes of the stored ones."""

    def __init__(self, store: MetadataStore, pause: Pause | None = None) -> None:
        super().__init__(store, _DECODERS)
        self._pause = pause or partial(asyncio.sleep, 0)
        self._read_rules = 0
        """The rules that were read since the last ones came into force."""
        self._reserved = 0
        """The bytes of rules that are written, and perhaps not in force yet."""
        self.loaded: Callable[[int], None] = lambda _: None
        """Called with the number of rules that were read anew, after they have come into force."""
        self._rules: RuleSet | None = None
        self._next = RuleSet()
        """The rules that have been read, but perhaps are not in force yet."""
        self._version = 0
        self._followers: list[Callable[[RuleSet | None], None]] = []
        self._unreadable: dict[ResourcePattern, str] = {}

    @property
    def rules(self) -> RuleSet | None:
        """The rules in force. None while they are not loaded or may not be read: deny all."""
        return self._rules

    def follow(self, follower: Callable[[RuleSet | None], None]) -> None:
        """Call back after every change, with the rules in force."""
        self._followers.append(follower)

    async def start(self, on_change: Callable[[], None]) -> None:
        """Load the rules. `on_change` is called when `catch_up` should be awaited.

        Raises StoreError.
        """
        await self._create_nodes()
        await super().start(on_change)

    async def create(self, rules: Sequence[AclBinding]) -> list[AclError | None]:
        """Add rules; return the errors of those that could not be added. Raises StoreError."""
        by_pattern: dict[ResourcePattern, dict[AccessControlEntry, None]] = {}
        async for pattern, entry in self._in_steps(rules):
            by_pattern.setdefault(pattern, {})[entry] = None
        errors: dict[ResourcePattern, AclError | None] = {}
        changes: dict[ResourcePattern, Change] = {}
        count = 0
        async for pattern, added in self._in_steps(by_pattern.items()):
            if self._has_no_room_for(pattern, added):
                errors[pattern] = TOO_MANY
                continue
            changes[pattern] = _Adding(added, self._pause)
            count += len(added)
            if len(changes) >= PATTERNS_AT_ONCE or count >= RULES_IN_A_STEP:
                errors |= await self._change_all(changes)
                changes, count = {}, 0
                await self._pause()
        errors |= await self._change_all(changes)
        await self.catch_up()
        return [errors[each.pattern] async for each in self._in_steps(rules)]

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[DeletedAcl]]:
        """Delete the rules that filters match; return those rules by filter.

        As in Kafka 3.9, a filter that lists no patterns finds those that this broker knows. Raises
        StoreError, and KafkaError if the filters match too many rules together.
        """
        times: Counter[AclFilter] = Counter()
        async for each in self._in_steps(filters):
            times[each] += 1
        by_pattern: dict[ResourcePattern, list[AclFilter]] = {}
        matches = 0
        async for each, repeated in self._in_steps(times.items(), FILTERS_IN_A_STEP):
            async for pattern, count in self._selected(each):
                by_pattern.setdefault(pattern, []).append(each)
                matches += count * repeated
                if matches > MAX_DELETED:
                    raise KafkaError(
                        ErrorCode.POLICY_VIOLATION, "The filters match too many rules together."
                    )
        deleted: dict[AclFilter, list[DeletedAcl]] = {}
        changes: dict[ResourcePattern, _Removing] = {}
        async for pattern, selecting in self._in_steps(by_pattern.items()):
            changes[pattern] = _Removing(selecting, self._pause)
            if len(changes) >= PATTERNS_AT_ONCE:
                await self._delete(changes, deleted)
                changes = {}
        await self._delete(changes, deleted)
        await self.catch_up()
        return [deleted.get(each, []) async for each in self._in_steps(filters)]

    async def _delete(
        self,
        changes: Mapping[ResourcePattern, "_Removing"],
        deleted: dict[AclFilter, list[DeletedAcl]],
    ) -> None:
        """Delete rules of some patterns, and add them to those that each filter has deleted."""
        errors = await self._change_all(changes)
        for pattern, removing in changes.items():
            error = errors[pattern]
            if error is not None:
                await removing(self._rules.entries(pattern) if self._rules is not None else ())
            for each, entries in removing.matched.items():
                found = deleted.setdefault(each, [])
                async for entry in self._in_steps(entries):
                    found.append(DeletedAcl(AclBinding(pattern, entry), error))
            await self._pause()

    # -- following --------------------------------------------------------------------------------

    async def _load(self) -> None:
        patterns: list[ResourcePattern] = []
        for how, root in acl_znodes.RULES.items():
            for label in await self._children(root):
                kind = ResourceType.labelled(label)
                if kind not in RESOURCE_TYPES:
                    _log.warning("rules of an unknown resource type", path=f"{root}/{label}")
                    continue
                names = await self._children(f"{root}/{label}")
                patterns += [
                    ResourcePattern(kind, name, how) async for name in self._in_steps(names)
                ]
        self._unreadable.clear()
        self._next = RuleSet(self._version + 1)
        await self._read(patterns)

    async def _read(self, keys: Sequence[ResourcePattern]) -> None:
        # The next version is built in steps, because each rule takes some microseconds.
        read: dict[ResourcePattern, Entries | Unreadable] = {}
        size = 0
        async for pattern, data in read_all(keys, self._data):
            read[pattern] = self._decoded(pattern, data)
            size += 1 + len(read[pattern])
            self._read_rules += len(read[pattern])
            if size >= RULES_IN_A_STEP:
                await self._pause()
                self._next, read, size = self._next.replaced(read), {}, 0
                await self._pause()
        self._next = self._next.replaced(read)

    def _caught_up(self) -> None:
        self._install(self._next)
        read, self._read_rules = self._read_rules, 0
        self.loaded(read)

    def _denied(self, error: NotAllowed) -> None:
        _log.error("access control rules may not be read: all is denied", path=error.path)
        self._install(None)

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._store.children(path)
        except NoNode:
            return []

    async def _data(self, pattern: ResourcePattern) -> bytes | None:
        """Return the content of a node; None if it may not be read."""
        try:
            data, _ = await self._store.get(acl_znodes.rules_path(pattern))
            return data
        except NoNode:
            return b""
        except NotAllowed:
            return None

    def _decoded(self, pattern: ResourcePattern, data: bytes | None) -> Entries | Unreadable:
        try:
            if data is None:
                raise ZnodeError("the store does not let this broker read it")
            content = acl_znodes.decode_rules(data)
        except ZnodeError as error:
            reason = str(error)
            if self._unreadable.get(pattern) != reason:
                path = acl_znodes.rules_path(pattern)
                _log.error("rules unreadable: what they name is denied", path=path, reason=reason)
                self._unreadable[pattern] = reason
            return Unreadable(reason)
        self._unreadable.pop(pattern, None)
        return content

    def _install(self, rules: RuleSet | None) -> None:
        self._rules = rules
        self._version = rules.version if rules is not None else self._version
        for follower in self._followers:
            follower(rules)

    # -- changing ---------------------------------------------------------------------------------

    def _has_no_room_for(
        self, pattern: ResourcePattern, added: Iterable[AccessControlEntry]
    ) -> bool:
        """Return whether the rules that this broker knows are too many: nothing is read then."""
        rules = self._rules
        return (
            rules is not None
            and rules.bytes + self._reserved >= MAX_BYTES
            and not rules.has(pattern, added)
        )

    async def _change_all(
        self, changes: Mapping[ResourcePattern, Change]
    ) -> dict[ResourcePattern, AclError | None]:
        """Change the stored rules of some patterns, in one transaction if nothing prevents it."""
        reserved = 0
        errors: dict[ResourcePattern, AclError | None] = dict.fromkeys(changes)
        try:
            try:
                ops: list[Op] = []
                for pattern, change in changes.items():
                    write, grown = await self._write(pattern, change)
                    if write is not None:
                        ops += [write, _notice(pattern)]
                    reserved += grown
                    self._reserved += grown
                if self._is_too_much(reserved):
                    raise TooLarge(acl_znodes.RULES[PatternType.LITERAL])
                if ops:
                    await self._store.multi(ops)
            except (BadVersion, NodeExists, NoNode, ZnodeError, TooLarge):
                # One by one, those that can be changed are.
                self._reserved -= reserved
                reserved = 0
                for pattern, change in changes.items():
                    errors[pattern] = await self._change(pattern, change)
            else:
                if reserved > 0:
                    # Those that are in force are counted then.
                    await self.catch_up()
        finally:
            self._reserved -= reserved
        return errors

    def _is_too_much(self, grown: int) -> bool:
        """Return whether rules are too many with those that are reserved. Fewer never are."""
        known = self._rules.bytes if self._rules is not None else 0
        return grown > 0 and known + self._reserved > MAX_BYTES

    async def _change(self, pattern: ResourcePattern, change: Change) -> AclError | None:
        """Replace the stored rules of a pattern with the result of `change`."""
        if not acl_znodes.is_storable(pattern.name):
            return AclError(
                ErrorCode.INVALID_REQUEST,
                f"ACL binding contains invalid resource name: {pattern.name}",
            )
        path = acl_znodes.rules_path(pattern)
        while True:
            grown = 0
            try:
                write, grown = await self._write(pattern, change)
                self._reserved += grown
                if self._is_too_much(grown):
                    return TOO_MANY
                if write is not None:
                    await self._store.multi([write, _notice(pattern)])
                if grown > 0:
                    await self.catch_up()
                return None
            except (BadVersion, NodeExists):
                continue
            except NoNode:
                await self._create_nodes()
            except ZnodeError as error:
                message = f"The rules of {path} cannot be read, and are not overwritten: {error}"
                return AclError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
            except TooLarge:
                message = f"The rules of {path} would take more bytes than a node may have"
                return AclError(ErrorCode.INVALID_REQUEST, message)
            finally:
                self._reserved -= grown

    async def _write(self, pattern: ResourcePattern, change: Change) -> tuple[Op | None, int]:
        """Return the operation that changes a node, None if nothing changes, and the bytes by which
        the rules grow."""
        if not acl_znodes.is_storable(pattern.name):
            raise ZnodeError(pattern.name)
        path = acl_znodes.rules_path(pattern)
        try:
            data, stat = await self._store.get(path)
            before, version = acl_znodes.decode_rules(data), stat.version
        except NoNode:
            before, version = (), None
        if len(before) > RULES_IN_A_STEP:
            await self._pause()
        after = await change(before)
        if after == before:
            return None, 0
        if len(after) > RULES_IN_A_STEP:
            await self._pause()
        content = acl_znodes.encode_rules(after)
        if content is None:
            raise TooLarge(path)
        grown = rule_bytes(after) - rule_bytes(before)
        if version is None:
            return Create(path, content), grown + len(pattern.name)
        return (SetData(path, content, version) if after else Delete(path, version)), grown

    async def _selected(self, wanted: AclFilter) -> AsyncIterator[tuple[ResourcePattern, int]]:
        """Yield the patterns that a filter selects, and how many of the rules that this broker
        knows it matches."""
        named = wanted.patterns()
        rules = self._rules if self._rules is not None else RuleSet()
        done = 0
        if named is not None:
            for pattern in named:
                if acl_znodes.is_storable(pattern.name):
                    entries = rules.entries(pattern)
                    done += len(entries)
                    yield pattern, sum(map(wanted.matches_entry, entries))
        else:
            for pattern, entries in rules.patterns():
                done += 1
                if wanted.matches_pattern(pattern):
                    done += len(entries)
                    count = sum(map(wanted.matches_entry, entries))
                    if count:
                        yield pattern, count
                if done >= RULES_IN_A_STEP:
                    await self._pause()
                    done = 0
        if done >= RULES_IN_A_STEP // FILTERS_IN_A_STEP:
            await self._pause()

    def _in_steps(self, items: Iterable[T], step: int = RULES_IN_A_STEP) -> AsyncIterator[T]:
        return _in_steps(items, self._pause, step)

    async def _create_nodes(self) -> None:
        """Create the nodes that are missing; another broker may do so at the same time."""
        while ops := await missing_nodes(self._store, acl_znodes.PERSISTENT_PATHS):
            with suppress(NodeExists):
                await self._store.multi(ops)


def _notice(pattern: ResourcePattern) -> Create:
    path = acl_znodes.change_path(pattern.pattern_type)
    return Create(path, acl_znodes.encode_change(pattern), sequence=True)


class _Adding:
    """A change that adds rules."""

    def __init__(self, added: Iterable[AccessControlEntry], pause: Pause) -> None:
        self._added = added
        self._pause = pause

    async def __call__(self, before: Entries) -> Entries:
        after = dict.fromkeys(before)
        async for entry in _in_steps(self._added, self._pause):
            after[entry] = None
        return tuple(after)


class _Removing:
    """A change that removes what filters match, and remembers what each of them matched."""

    def __init__(self, filters: Sequence[AclFilter], pause: Pause) -> None:
        self._pause = pause
        self.matched: dict[AclFilter, list[AccessControlEntry]] = {each: [] for each in filters}

    async def __call__(self, before: Entries) -> Entries:
        removed: set[AccessControlEntry] = set()
        done = 0
        for each in self.matched:
            found = self.matched[each] = list(filter(each.matches_entry, before))
            removed.update(found)
            done += 1 + len(before)
            if done >= RULES_IN_A_STEP:
                done = 0
                await self._pause()
        return tuple(entry for entry in before if entry not in removed)


async def _in_steps(
    items: Iterable[T], pause: Pause, step: int = RULES_IN_A_STEP
) -> AsyncIterator[T]:
    """Yield items, and let other work run after every `step` of them."""
    for number, item in enumerate(items, 1):
        yield item
        if number % step == 0:
            await pause()
