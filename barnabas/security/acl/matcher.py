"""The decision whether a principal may do something: deny wins, and no rule means no.

A rule set never changes: each change makes a new one, and a new Matcher with it. So the decisions
that a Matcher remembers are those of its version.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas.security.acl.rules import (
    ANYONE,
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
    host_key,
)
from barnabas.security.principal import Principal

MAX_DECISIONS: Final = 16_384
"""The decisions and clients that a Matcher remembers, a few MB; the next one forgets all others."""
_LONGEST_NAME: Final = 256
"""Characters of a remembered name: a client may ask for very long ones."""
_SOME_NAME: Final = "hardcode"
"""The resource that Kafka asks for before it looks at the rules of a whole type."""
_RULE_BYTES: Final = 128
"""Bytes of a rule without its texts."""
_Subject = tuple[Principal, str]
"""A principal and a host key."""


class Reason(StrEnum):
    """The reason of a decision."""

    SUPER_USER = "SuperUser"
    DENY_RULE = "DenyRule"
    ALLOW_RULE = "AllowRule"
    UNREADABLE = "Unreadable"
    """The rules of a matching pattern cannot be read, so they may deny."""
    NOT_LOADED = "NotLoaded"
    """The rules are not loaded yet, or may not be read."""
    NO_RULE_MATCHES = "DefaultDeny"
    """Rules name the resource, and none allows the operation; or none names it."""
    NO_RULE_ALLOWED = "DefaultAllow"
    """No rule names the resource, and allow.everyone.if.no.acl.found is true."""


class AclDecision(NamedTuple):
    """A decision, its reason, and the rule if there is one."""

    allowed: bool
    reason: Reason
    rule: AclBinding | None = None


class Policy(NamedTuple):
    """The settings super.users and allow.everyone.if.no.acl.found."""

    super_users: frozenset[Principal] = frozenset()
    allow_everyone: bool = False


def parse_super_users(value: str) -> frozenset[Principal]:
    """Parse the semicolon-separated list of super.users. Raise ValueError with Kafka's text."""
    names = (name.strip() for name in value.split(";"))
    return frozenset(Principal.parse(name) for name in names if name)


class Unreadable(NamedTuple):
    """The content of a pattern's rules if they cannot be read: all that it matches is denied."""

    reason: str


Entries = Iterable[AccessControlEntry] | Unreadable


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


_DENIED_BY: Final = tuple(_bits(*{each, AclOperation.ALL}) for each in AclOperation)
"""The operations whose denial denies an operation, as bits."""
_IMPLYING: Final = {
    AclOperation.DESCRIBE: _bits(
        AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER
    ),
    AclOperation.DESCRIBE_CONFIGS: _bits(AclOperation.ALTER_CONFIGS),
}
_ALLOWED_BY: Final = tuple(
    bits | _IMPLYING.get(operation, 0)
    for operation, bits in zip(AclOperation, _DENIED_BY, strict=True)
)
"""The operations whose permission allows an operation, as bits."""
_DENY_ALL: Final = AccessControlEntry(ANYONE, WILDCARD, AclOperation.ALL, AclPermissionType.DENY)


def rule_bytes(entries: Iterable[AccessControlEntry]) -> int:
    """Return the bytes that rules take, about as in the metadata store."""
    return sum(
        _RULE_BYTES + len(kind) + len(name) + len(host) for (kind, name), host, _, _ in entries
    )


class _PatternRules:
    """The rules of one pattern: for each principal and host the denied and the allowed operations,
    as bits."""

    __slots__ = ("by_subject", "bytes", "entries", "pattern", "unreadable")

    def __init__(self, pattern: ResourcePattern, content: Entries) -> None:
        self.pattern = pattern
        self.unreadable = isinstance(content, Unreadable)
        self.entries: tuple[AccessControlEntry, ...] = (
            (_DENY_ALL,) if isinstance(content, Unreadable) else tuple(dict.fromkeys(content))
        )
        self.bytes = len(pattern.name) + rule_bytes(self.entries) if self.entries else 0
        self.by_subject: dict[_Subject, tuple[int, int]] = {}
        for principal, host, operation, permission in self.entries:
            subject = (principal, host_key(host))
            denied, allowed = self.by_subject.get(subject, (0, 0))
            if permission is AclPermissionType.DENY:
                denied |= 1 << operation
            else:
                allowed |= 1 << operation
            self.by_subject[subject] = denied, allowed

    def find(self, subjects: Iterable[_Subject], permission: int, bits: int) -> AclBinding | None:
        """Return the first rule with one of these subjects, a permission, and one of these
        operations."""
        for entry in self.entries:
            if (
                entry.permission == permission
                and (entry.principal, host_key(entry.host)) in subjects
                and bits >> entry.operation & 1
            ):
                return AclBinding(self.pattern, entry)
        return None


class _TypeRules:
    """The patterns of one resource type by name."""

    def __init__(
        self,
        literal: Mapping[str, _PatternRules] = MappingProxyType({}),
        prefixed: Mapping[str, _PatternRules] = MappingProxyType({}),
    ) -> None:
        self.literal = literal
        self.prefixed = prefixed
        self._lengths = sorted({len(name) for name in prefixed})

    def naming(self, name: str) -> list[_PatternRules]:
        """Return the rules of each pattern that matches a resource: one look-up for each length
        that a prefix has."""
        literal, prefixed = self.literal, self.prefixed
        names = (name, WILDCARD) if name != WILDCARD else (name,)
        found = [literal[each] for each in names if each in literal]
        for length in self._lengths:
            if length > len(name):
                break
            rules = prefixed.get(name[:length])
            if rules is not None:
                found.append(rules)
        return found

    @cached_property
    def by_subject(self) -> dict[_Subject, list[tuple[ResourcePattern, int, int]]]:
        """The patterns with rules of each principal and host: denied and allowed operations."""
        found: dict[_Subject, list[tuple[ResourcePattern, int, int]]] = {}
        for patterns in (self.literal, self.prefixed):
            for rules in patterns.values():
                for subject, (denied, allowed) in rules.by_subject.items():
                    found.setdefault(subject, []).append((rules.pattern, denied, allowed))
        return found


class RuleSet:
    """All rules of a cluster. It never changes."""

    def __init__(
        self,
        version: int = 0,
        types: Mapping[ResourceType, _TypeRules] = MappingProxyType({}),
        size: int = 0,
    ) -> None:
        self.version = version
        self.bytes = size
        """The bytes that all rules take, about as in the metadata store."""
        self._types = types

    @classmethod
    def of(cls, rules: Iterable[AclBinding]) -> "RuleSet":
        """Return the set of these rules."""
        content: dict[ResourcePattern, list[AccessControlEntry]] = {}
        for pattern, entry in rules:
            content.setdefault(pattern, []).append(entry)
        return cls().replaced(content)

    def replaced(self, content: Mapping[ResourcePattern, Entries]) -> "RuleSet":
        """Return the next version, with other rules of some patterns; no rules remove a pattern."""
        size = self.bytes
        changed: dict[tuple[ResourceType, PatternType], dict[str, _PatternRules]] = {}
        for pattern, entries in content.items():
            key = (pattern.type, pattern.pattern_type)
            if key not in changed:
                changed[key] = dict(self._patterns(*key))
            rules = _PatternRules(pattern, entries)
            before = changed[key].pop(pattern.name, None)
            size += rules.bytes - (0 if before is None else before.bytes)
            if rules.entries:
                changed[key][pattern.name] = rules
        types = dict(self._types)
        for kind in {kind for kind, _ in changed}:
            types[kind] = _TypeRules(
                *(
                    changed.get((kind, how), self._patterns(kind, how))
                    for how in (PatternType.LITERAL, PatternType.PREFIXED)
                )
            )
        return RuleSet(self.version + 1, types, size)

    def naming(self, kind: ResourceType, name: str) -> list[_PatternRules]:
        """Return the rules of each pattern that matches a resource."""
        rules = self._types.get(kind)
        return rules.naming(name) if rules is not None else []

    def of_type(
        self, kind: ResourceType, subjects: Iterable[_Subject]
    ) -> Iterator[tuple[ResourcePattern, int, int]]:
        """Yield the patterns of a type with rules of these subjects: denied and allowed
        operations, as bits."""
        rules = self._types.get(kind)
        if rules is not None:
            for subject in subjects:
                yield from rules.by_subject.get(subject, ())

    def patterns(self) -> Iterator[tuple[ResourcePattern, tuple[AccessControlEntry, ...]]]:
        """Yield every pattern with its rules."""
        for rules in self._types.values():
            for patterns in (rules.literal, rules.prefixed):
                for each in patterns.values():
                    yield each.pattern, each.entries

    def entries(self, pattern: ResourcePattern) -> tuple[AccessControlEntry, ...]:
        """Return the rules of a pattern; none if there are none."""
        rules = self._patterns(pattern.type, pattern.pattern_type).get(pattern.name)
        return rules.entries if rules is not None else ()

    def has(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> bool:
        """Return whether all of these are rules of a pattern."""
        return {*self.entries(pattern)}.issuperset(entries)

    def _patterns(self, kind: ResourceType, how: PatternType) -> Mapping[str, _PatternRules]:
        rules = self._types.get(kind, _NO_RULES)
        return rules.prefixed if how is PatternType.PREFIXED else rules.literal


_NO_RULES: Final = _TypeRules()


class AclClient:
    """A principal on a host, and the decisions about it by one version of the rules."""

    __slots__ = ("_matcher", "decided", "principal", "subjects")

    def __init__(self, matcher: "Matcher", principal: Principal, host: str) -> None:
        self._matcher = matcher
        self.principal = principal
        self.subjects = _subjects(principal, host_key(host))
        """The principals and hosts of the rules that apply to it."""
        self.decided: dict[int, dict[str, bool]] = {}
        """The remembered decisions: by `slot`, then by the name of the resource."""

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Return whether an operation is allowed."""
        known = self._known(slot(operation, resource_type))
        allowed = known.get(name)
        if allowed is None:
            allowed = self._matcher.answer(self, operation, resource_type, name)
            if len(name) <= _LONGEST_NAME:
                self._matcher.remember(known, name, allowed)
        return allowed

    def allows_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Return whether an operation is allowed on at least one resource of a type (KIP-679).

        As in Kafka, operations that others imply need separate rules here.
        """
        known = self._known(_ANY_OF | slot(operation, resource_type))
        allowed = known.get("")
        if allowed is None:
            allowed = self.allows(
                operation, resource_type, _SOME_NAME
            ) or self._matcher.answer_for_some(self, operation, resource_type)
            self._matcher.remember(known, "", allowed)
        return allowed

    def _known(self, slot: int) -> dict[str, bool]:
        known = self.decided.get(slot)
        if known is None:
            known = self.decided[slot] = {}
        return known


_ANY_OF: Final = 1 << 16
"""Set in the slot of decisions about a whole type of resources."""


def slot(operation: AclOperation, resource_type: ResourceType) -> int:
    """Return the key of the decisions about an operation on resources of a type."""
    return operation << 3 | resource_type


class Matcher:
    """Decides by one version of the rules, and remembers what it was asked."""

    def __init__(self, rules: RuleSet, policy: Policy) -> None:
        self.rules = rules
        self._policy = policy
        self._clients: dict[tuple[Principal, str], AclClient] = {}
        self._remembered = 0

    def client(self, principal: Principal, host: str) -> AclClient:
        """Return a client. `host` is an address, however it is written."""
        client = self._clients.get((principal, host))
        if client is None:
            self._count()
            client = self._clients[principal, host] = AclClient(self, principal, host)
        return client

    def allows(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Return whether an operation is allowed. `host` is an address, however it is written."""
        return self.client(principal, host).allows(operation, resource_type, name)

    def allows_any(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return whether an operation is allowed on at least one resource of a type (KIP-679)."""
        return self.client(principal, host).allows_any(operation, resource_type)

    def decide(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> AclDecision:
        """Return the decision of `allows` with its reason: the first rule that denies, or the first
        that allows."""
        if principal in self._policy.super_users:
            return AclDecision(True, Reason.SUPER_USER)
        found = self.rules.naming(resource_type, name)
        if not found and self._policy.allow_everyone:
            return AclDecision(True, Reason.NO_RULE_ALLOWED)
        subjects = _subjects(principal, host_key(host))
        for permission, by, reason in (
            (AclPermissionType.DENY, _DENIED_BY, Reason.DENY_RULE),
            (AclPermissionType.ALLOW, _ALLOWED_BY, Reason.ALLOW_RULE),
        ):
            for rules in found:
                rule = rules.find(subjects, permission, by[operation])
                if rule is not None:
                    reason = Reason.UNREADABLE if rules.unreadable else reason
                    return AclDecision(permission is AclPermissionType.ALLOW, reason, rule)
        return AclDecision(False, Reason.NO_RULE_MATCHES)

    def answer(
        self, client: AclClient, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Return whether an operation is allowed, from the rules."""
        if client.principal in self._policy.super_users:
            return True
        found = self.rules.naming(resource_type, name)
        if not found:
            return self._policy.allow_everyone
        subjects = client.subjects
        denied = allowed = 0
        for rules in found:
            by_subject = rules.by_subject
            for subject in subjects:
                bits = by_subject.get(subject)
                if bits is not None:
                    denied |= bits[0]
                    allowed |= bits[1]
        return not denied & _DENIED_BY[operation] and bool(allowed & _ALLOWED_BY[operation])

    def answer_for_some(
        self, client: AclClient, operation: AclOperation, kind: ResourceType
    ) -> bool:
        """Return whether rules allow an operation on a resource, and none denies all of those."""
        bits = _DENIED_BY[operation]
        denied: dict[PatternType, set[str]] = {
            PatternType.LITERAL: set(),
            PatternType.PREFIXED: set(),
        }
        candidates: set[ResourcePattern] = set()
        for pattern, denies, allows in self.rules.of_type(kind, client.subjects):
            if denies & bits:
                denied[pattern.pattern_type].add(pattern.name)
            if allows & bits:
                candidates.add(pattern)
        literals, prefixes = denied[PatternType.LITERAL], denied[PatternType.PREFIXED]
        if WILDCARD in literals:
            return False
        return any(
            pattern == ResourcePattern(kind, WILDCARD)
            or not _is_denied(pattern, literals, prefixes)
            for pattern in candidates
        )

    def remember(self, known: dict[str, bool], name: str, allowed: bool) -> None:
        """Remember a decision; the one that is too many forgets all others."""
        self._count()
        known[name] = allowed

    def _count(self) -> None:
        self._remembered += 1
        if self._remembered > MAX_DECISIONS:
            self._remembered = 1
            for client in self._clients.values():
                # The requests in progress have it still.
                client.decided.clear()
            self._clients.clear()


def _subjects(principal: Principal, host: str) -> tuple[_Subject, ...]:
    """Return the principals and hosts of the rules that apply to a connection."""
    return (principal, host), (principal, WILDCARD), (ANYONE, host), (ANYONE, WILDCARD)


def _is_denied(pattern: ResourcePattern, literals: set[str], prefixes: set[str]) -> bool:
    """Return whether rules that deny cover the whole pattern."""
    if pattern.pattern_type is PatternType.LITERAL and pattern.name in literals:
        return True
    name = pattern.name
    return any(name[:length] in prefixes for length in range(1, len(name) + 1))
