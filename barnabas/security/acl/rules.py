"""Access control rules: Kafka's types with their codes, filters (KIP-290), and their validation.

A rule is an AclBinding: its entry allows or denies an operation on the resources that its pattern
matches. `matcher.py` decides with them.
"""

import re
from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from barnabas.security.principal import USER, Principal

WILDCARD: Final = "*"
"""The literal name that matches every resource of its type, and the host that matches every
host."""
ANYONE: Final = Principal(USER, WILDCARD)
"""The principal of rules that apply to every principal, of any type."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


class _Code(IntEnum):
    """A code on the wire. Unknown codes are UNKNOWN, as in Kafka."""

    # The hash of Enum is Python code, and rules are hashed by the thousand.
    __hash__ = int.__hash__

    @classmethod
    def _missing_(cls, _value: object) -> Self:
        return cls(0)

    @property
    def label(self) -> str:
        """The name in ZooKeeper and in Kafka's tools, such as TransactionalId."""
        return self.name.title().replace("_", "")

    @classmethod
    def labelled(cls, label: str) -> Self:
        """Return the member with a label; UNKNOWN if there is no such member."""
        return next((each for each in cls if each.label == label), cls(0))


class ResourceType(_Code):
    """The kinds of resources. ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Code):
    """The ways a pattern's name is compared. ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Code):
    """The operations. ALL stands for every operation in a rule; ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(_Code):
    """The effect of a rule. ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_OCTET: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4: Final = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}")
"""Addresses that need no other way to write them; `ip_address` takes ten times longer."""
_Op = AclOperation
RESOURCE_TYPES: Final = tuple(each for each in ResourceType if each > ResourceType.ANY)
"""The types that a resource can have."""
SUPPORTED_OPERATIONS: Final[Mapping[ResourceType, tuple[AclOperation, ...]]] = MappingProxyType(
    {
        ResourceType.TOPIC: (
            *(_Op.READ, _Op.WRITE, _Op.CREATE, _Op.DESCRIBE, _Op.DELETE, _Op.ALTER),
            *(_Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS),
        ),
        ResourceType.GROUP: (
            *(_Op.READ, _Op.DESCRIBE, _Op.DELETE, _Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS),
        ),
        ResourceType.CLUSTER: (
            *(_Op.CREATE, _Op.CLUSTER_ACTION, _Op.DESCRIBE_CONFIGS, _Op.ALTER_CONFIGS),
            *(_Op.IDEMPOTENT_WRITE, _Op.ALTER, _Op.DESCRIBE),
        ),
        ResourceType.TRANSACTIONAL_ID: (_Op.DESCRIBE, _Op.WRITE, _Op.TWO_PHASE_COMMIT),
        ResourceType.DELEGATION_TOKEN: (_Op.DESCRIBE,),
        ResourceType.USER: (_Op.CREATE_TOKENS, _Op.DESCRIBE_TOKENS),
    }
)
"""The operations that Kafka checks on each type of resource."""


class ResourcePattern(NamedTuple):
    """The resources of one type whose name equals `name`, or begins with it if prefixed.

    The literal name `*` matches every resource of the type.
    """

    type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


class AccessControlEntry(NamedTuple):
    """The permission of a principal on a host for an operation."""

    principal: Principal
    host: str
    operation: AclOperation
    permission: AclPermissionType


class AclBinding(NamedTuple):
    """A rule."""

    pattern: ResourcePattern
    entry: AccessControlEntry

    def __str__(self) -> str:
        (kind, name, how), (principal, host, operation, permission) = self
        return (
            f"{permission.name} {operation.name} for {principal} from host {host} on "
            f"{how.name} {kind.name} {name}"
        )


class AclFilter(NamedTuple):
    """A filter of rules: None and ANY match everything."""

    type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermissionType = AclPermissionType.ANY

    def refusal(self) -> str | None:
        """Return Kafka's reason why the filter is invalid."""
        if not (self.type and self.pattern_type):
            return "Unknown patternFilter."
        if not (self.operation and self.permission):
            return "Unknown entryFilter."
        return None

    def matches(self, rule: AclBinding) -> bool:
        return self.matches_pattern(rule.pattern) and self.matches_entry(rule.entry)

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Return whether the pattern is selected: with MATCH, each one that matches a resource with
        the filter's name."""
        kind, name, how = pattern
        if self.type not in (ResourceType.ANY, kind):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, how):
            return False
        if self.name is None or self.name == name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        return self.name.startswith(name) if how is PatternType.PREFIXED else name == WILDCARD

    def matches_entry(self, entry: AccessControlEntry) -> bool:
        return (
            self.principal in (None, str(entry.principal))
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermissionType.ANY, entry.permission)
        )

    def patterns(self) -> tuple[ResourcePattern, ...] | None:
        """Return the patterns that the filter can select; None if they cannot be listed."""
        if self.type is ResourceType.ANY or self.name is None:
            return None
        if self.pattern_type is PatternType.MATCH:
            return None
        types: tuple[PatternType, ...] = (self.pattern_type,)
        if self.pattern_type is PatternType.ANY:
            types = (PatternType.LITERAL, PatternType.PREFIXED)
        return tuple(ResourcePattern(self.type, self.name, each) for each in types)


class InvalidAcl(ValueError):
    """A rule that cannot be created; the message is Kafka's."""


def new_rule(
    resource_type: int,
    name: str,
    pattern_type: int,
    principal: str,
    host: str,
    operation: int,
    permission_type: int,
) -> AclBinding:
    """Return the rule that a CreateAcls request describes.

    Raise InvalidAcl, with the first reason in the order of Kafka's checks.
    """
    pattern = ResourcePattern(ResourceType(resource_type), name, PatternType(pattern_type))
    codes = {
        "resourceType": pattern.type,
        "patternType": pattern.pattern_type,
        "operation": AclOperation(operation),
        "permissionType": AclPermissionType(permission_type),
    }
    for what, code in codes.items():
        if code.name in ("ANY", "MATCH"):
            raise InvalidAcl(f"{what} must not be {code.name}")
    if pattern.type is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise InvalidAcl(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise InvalidAcl("Invalid empty resource name")
    for what, code in codes.items():
        if not code:
            raise InvalidAcl(f"Invalid {what} {code.name}")
    try:
        who = Principal.parse(principal)
    except ValueError as error:
        raise InvalidAcl(
            f"Could not parse principal from `{principal}` (no colon is present separating the "
            "principal type from the principal name)"
        ) from error
    entry = AccessControlEntry(
        who, host, AclOperation(operation), AclPermissionType(permission_type)
    )
    return AclBinding(pattern, entry)


def unsupported_operation(rule: AclBinding) -> str | None:
    """Return the reason why Kafka's tool does not create a rule that has no effect.

    Brokers accept such a rule.
    """
    supported = (*SUPPORTED_OPERATIONS[rule.pattern.type], AclOperation.ALL)
    if rule.entry.operation in supported:
        return None
    names = ", ".join(sorted(each.name for each in supported))
    return f"ResourceType {rule.pattern.type.name} only supports operations {names}"


@lru_cache(maxsize=4096)
def is_address(host: str) -> bool:
    """Return whether a text is an IP address."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def host_key(host: str) -> str:
    """Return the text under which the hosts of rules and of connections are compared.

    It is the same for every way to write an address; IPv4 in IPv6 is IPv4, as in Java.
    """
    if _IPV4.fullmatch(host):
        return host
    try:
        address = ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if address.version == 6 else None
    return str(mapped or address)
