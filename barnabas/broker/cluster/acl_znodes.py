"""The paths and contents of the nodes with access control rules: those of Kafka 3.9; pure.

One node has the rules of one resource pattern, under the name of the resource as it is: Kafka
encodes no names here, and we must not, because a rule that denies `a%2Fb` means that name.
"""

import json
import re
from collections.abc import Collection
from types import MappingProxyType
from typing import Any, Final

from barnabas.broker.cluster.znodes import compact_json, guarded
from barnabas.security.acl.rules import (
    RESOURCE_TYPES,
    AccessControlEntry,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.principal import Principal

RULES: Final = MappingProxyType(
    {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
)
"""The parents of the resource types, by pattern type."""
CHANGES: Final = MappingProxyType(
    {PatternType.LITERAL: "/kafka-acl-changes", PatternType.PREFIXED: "/kafka-acl-extended-changes"}
)
"""The parents of change notifications, by pattern type."""
CHANGE_PREFIX: Final = "acl_changes_"
PERSISTENT_PATHS: Final = (
    *(f"{root}/{kind.label}" for root in RULES.values() for kind in RESOURCE_TYPES),
    *CHANGES.values(),
)
"""Nodes that exist in every cluster with an authorizer."""
MAX_NODE_BYTES: Final = 1 << 20
"""Bytes of a node, about what ZooKeeper accepts by default: decoding holds the event loop."""

_VERSION: Final = 1
_UNSTORABLE: Final = re.compile("[/\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]|\\A\\.{0,2}\\Z")
"""The names that ZooKeeper refuses as names of nodes."""
_OPERATIONS: Final = {each.label: each for each in AclOperation if each > AclOperation.ANY}
_PERMISSIONS: Final = {
    each.label: each for each in AclPermissionType if each > AclPermissionType.ANY
}
_OPERATION_LABELS: Final = {each: label for label, each in _OPERATIONS.items()}
_PERMISSION_LABELS: Final = {each: label for label, each in _PERMISSIONS.items()}
_LEAST_ENTRY: Final = len('{"principal":":","permissionType":"Deny","operation":"All","host":""}')


def is_storable(name: str) -> bool:
    """Return whether a resource name can be the name of a node."""
    return _UNSTORABLE.search(name) is None


def rules_path(pattern: ResourcePattern) -> str:
    """Return the path of the node with the rules of a pattern."""
    return f"{RULES[pattern.pattern_type]}/{pattern.type.label}/{pattern.name}"


def change_path(how: PatternType) -> str:
    """Return the path of a change notification, without its sequence number."""
    return f"{CHANGES[how]}/{CHANGE_PREFIX}"


def encode_rules(entries: Collection[AccessControlEntry]) -> bytes | None:
    """Return the content of a node; None if it would be larger than a node may be."""
    if len(entries) * _LEAST_ENTRY > MAX_NODE_BYTES:
        return None
    acls = [
        {
            "principal": f"{principal.type}:{principal.name}",
            "permissionType": _PERMISSION_LABELS[permission],
            "operation": _OPERATION_LABELS[operation],
            "host": host,
        }
        for principal, host, operation, permission in entries
    ]
    data = compact_json({"version": _VERSION, "acls": acls})
    return data if len(data) <= MAX_NODE_BYTES else None


@guarded
def decode_rules(data: bytes) -> tuple[AccessControlEntry, ...]:
    """Return the rules of a node. An entry that is not understood may deny, so it is an error."""
    if len(data) > MAX_NODE_BYTES:
        raise ValueError(f"{len(data)} bytes are more than {MAX_NODE_BYTES}")
    if not data:
        return ()
    value = json.loads(data)
    if value["version"] != _VERSION:
        raise ValueError(f"version {value['version']!r} is not {_VERSION}")
    return tuple(
        AccessControlEntry(
            Principal.parse(_text(each["principal"])),
            _text(each["host"]),
            _OPERATIONS[each["operation"]],
            _PERMISSIONS[each["permissionType"]],
        )
        for each in value["acls"]
    )


def encode_change(pattern: ResourcePattern) -> bytes:
    """Return the notification of a change of a pattern's rules."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.type.name}:{pattern.name}".encode()
    return compact_json(
        {
            "version": _VERSION,
            "resourceType": pattern.type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def decode_change(how: PatternType, data: bytes) -> ResourcePattern:
    """Return the pattern whose rules have changed."""
    return _decode_literal(data) if how is PatternType.LITERAL else _decode_extended(data)


@guarded
def _decode_literal(data: bytes) -> ResourcePattern:
    kind, _, name = data.decode().partition(":")
    return _changed(kind, name, PatternType.LITERAL)


@guarded
def _decode_extended(data: bytes) -> ResourcePattern:
    value = json.loads(data)
    if value["version"] > _VERSION:
        raise ValueError(f"version {value['version']!r} is not {_VERSION}")
    how = PatternType[value["patternType"].upper()]
    if how is not PatternType.PREFIXED:
        raise ValueError(f"pattern type {how.name}")
    return _changed(value["resourceType"], value["name"], how)


def _changed(kind: str, name: str, how: PatternType) -> ResourcePattern:
    found = ResourceType[kind.upper()]
    if found not in RESOURCE_TYPES or not is_storable(name):
        raise ValueError(f"no resource: {kind}:{name}")
    return ResourcePattern(found, name, how)


def _text(value: Any) -> str:
    """Return a value of JSON if it is a text that can be sent."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    value.encode()
    return value
