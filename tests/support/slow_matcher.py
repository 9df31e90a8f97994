"""A matcher that looks at every rule, as Kafka's documents describe it."""

from collections.abc import Sequence

from barnabas.security.acl.matcher import Policy
from barnabas.security.acl.rules import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.principal import Principal

ALICE, BOB, ROOT = (Principal("User", name) for name in ("alice", "bob", "root"))
ANYONE = Principal("User", "*")
HOST, OTHER_HOST = "10.0.0.1", "10.0.0.2"
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
READ, WRITE, DESCRIBE, ALL = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALL,
)
IMPLIED = {
    AclOperation.DESCRIBE: {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


def rule(
    name: str,
    operation: AclOperation = READ,
    permission: AclPermissionType = ALLOW,
    *,
    who: Principal = ALICE,
    how: PatternType = LITERAL,
    host: str = "*",
    kind: ResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(
        ResourcePattern(kind, name, how), AccessControlEntry(who, host, operation, permission)
    )


def applies(rule: AclBinding, who: Principal, host: str, operations: set[AclOperation]) -> bool:
    entry = rule.entry
    return (
        entry.principal in (who, ANYONE)
        and entry.host in (host, "*")
        and entry.operation in operations | {ALL}
    )


def names(pattern: ResourcePattern, kind: ResourceType, name: str) -> bool:
    if pattern.type != kind:
        return False
    if pattern.pattern_type is PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, "*")


def decide_slowly(
    rules: Sequence[AclBinding],
    policy: Policy,
    who: Principal,
    host: str,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
) -> bool:
    if who in policy.super_users:
        return True
    found = [each for each in rules if names(each.pattern, kind, name)]
    if not found:
        return policy.allow_everyone
    denies = [each for each in found if each.entry.permission is DENY]
    allows = [each for each in found if each.entry.permission is ALLOW]
    allowing = {operation} | IMPLIED.get(operation, set())
    return not any(applies(each, who, host, {operation}) for each in denies) and any(
        applies(each, who, host, allowing) for each in allows
    )


def decide_any_slowly(
    rules: Sequence[AclBinding],
    policy: Policy,
    who: Principal,
    host: str,
    operation: AclOperation,
    kind: ResourceType,
) -> bool:
    """Follow Authorizer.authorizeByResourceType step by step."""
    if decide_slowly(rules, policy, who, host, operation, kind, "hardcode"):
        return True
    allowed, denied = [
        {
            each.pattern
            for each in rules
            if each.pattern.type == kind
            and each.entry.permission is permission
            and applies(each, who, host, {operation})
        }
        for permission in (ALLOW, DENY)
    ]
    if ResourcePattern(kind, "*", LITERAL) in denied:
        return False
    for pattern in allowed:
        prefixes = [pattern.name[: end + 1] for end in range(len(pattern.name))]
        if pattern == ResourcePattern(kind, "*", LITERAL):
            return True
        if pattern.pattern_type is LITERAL and pattern in denied:
            continue
        if not any(ResourcePattern(kind, prefix, PREFIXED) in denied for prefix in prefixes):
            return True
    return False
