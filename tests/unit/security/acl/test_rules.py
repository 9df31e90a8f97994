"""Rules: Kafka's codes and labels, filters, and the reasons why a rule is refused."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.security.acl.rules import (
    RESOURCE_TYPES,
    SUPPORTED_OPERATIONS,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermissionType,
    InvalidAcl,
    PatternType,
    ResourcePattern,
    ResourceType,
    host_key,
    new_rule,
    unsupported_operation,
)
from barnabas.security.principal import Principal

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ANY, MATCH = PatternType.ANY, PatternType.MATCH
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ_BY_ALICE = AccessControlEntry(
    Principal("User", "alice"), "*", AclOperation.READ, AclPermissionType.ALLOW
)


def test_codes_are_those_of_kafka() -> None:
    assert [each.name for each in ResourceType] == [
        "UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN",
        "USER",
    ]  # fmt: skip
    assert [each.name for each in PatternType] == ["UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED"]
    assert [each.name for each in AclOperation] == [
        "UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE",
        "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS",
        "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
    ]  # fmt: skip
    assert [each.name for each in AclPermissionType] == ["UNKNOWN", "ANY", "DENY", "ALLOW"]
    for enum in (ResourceType, PatternType, AclOperation, AclPermissionType):
        assert [int(each) for each in enum] == list(range(len(enum)))
        assert enum(-1) is enum(99) is enum(0)


def test_labels_are_those_of_kafkas_nodes() -> None:
    assert ResourceType.TRANSACTIONAL_ID.label == "TransactionalId"
    assert AclPermissionType.DENY.label == "Deny"
    for each in AclOperation:
        assert AclOperation.labelled(each.label) is each
    assert AclOperation.labelled("READ") is AclOperation.UNKNOWN


# --- filters


@pytest.mark.parametrize(
    ("asked", "how", "selected"),
    [
        (None, ANY, {"abc", "ab*", "*", "a"}),
        (None, LITERAL, {"abc", "*", "a"}),
        (None, PREFIXED, {"ab*"}),
        (None, MATCH, {"abc", "ab*", "*", "a"}),
        ("abc", ANY, {"abc"}),
        ("abc", LITERAL, {"abc"}),
        ("abc", PREFIXED, set()),
        ("ab", PREFIXED, {"ab*"}),
        ("ab", ANY, {"ab*"}),
        ("abc", MATCH, {"abc", "ab*", "*"}),
        ("abd", MATCH, {"ab*", "*"}),
        ("a", MATCH, {"a", "*"}),
        ("*", ANY, {"*"}),
        ("*", MATCH, {"*"}),
        ("*", LITERAL, {"*"}),
    ],
)
def test_filter_selects_patterns_as_kip_290_says(
    asked: str | None, how: PatternType, selected: set[str]
) -> None:
    patterns = {
        "abc": ResourcePattern(TOPIC, "abc"),
        "a": ResourcePattern(TOPIC, "a"),
        "*": ResourcePattern(TOPIC, "*"),
        "ab*": ResourcePattern(TOPIC, "ab", PREFIXED),
    }
    for kind in (TOPIC, ResourceType.ANY):
        wanted = AclFilter(kind, asked, how)
        assert {key for key, each in patterns.items() if wanted.matches_pattern(each)} == selected
    other = AclFilter(GROUP, asked, how)
    assert not any(other.matches_pattern(each) for each in patterns.values())


names = st.sampled_from(["a", "ab", "*"])


@given(
    kind=st.sampled_from([ResourceType.ANY, TOPIC, GROUP]),
    asked=names | st.none(),
    how=st.sampled_from([ANY, MATCH, LITERAL, PREFIXED]),
    pattern=st.builds(
        ResourcePattern,
        st.sampled_from([TOPIC, GROUP]),
        names,
        st.sampled_from([LITERAL, PREFIXED]),
    ),
)
def test_listed_patterns_are_those_that_the_filter_selects(
    kind: ResourceType, asked: str | None, how: PatternType, pattern: ResourcePattern
) -> None:
    wanted = AclFilter(kind, asked, how)
    listed = wanted.patterns()
    assert (listed is None) == (kind is ResourceType.ANY or asked is None or how is MATCH)
    if listed is not None:
        assert (pattern in listed) == wanted.matches_pattern(pattern)


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        (AclFilter(), True),
        (AclFilter(principal="User:alice", host="*"), True),
        (AclFilter(principal="User:*"), False),
        (AclFilter(principal="alice"), False),
        (AclFilter(host="10.0.0.1"), False),
        (AclFilter(operation=AclOperation.READ), True),
        (AclFilter(operation=AclOperation.ALL), False),
        (AclFilter(permission=AclPermissionType.DENY), False),
        (AclFilter(permission=AclPermissionType.ALLOW, type=GROUP), False),
    ],
)
def test_filter_compares_entries_as_texts(wanted: AclFilter, matches: bool) -> None:
    assert wanted.matches(AclBinding(ResourcePattern(TOPIC, "t"), READ_BY_ALICE)) == matches


def test_filter_with_an_unknown_code_is_refused() -> None:
    assert AclFilter(ResourceType(99)).refusal() == "Unknown patternFilter."
    assert AclFilter(pattern_type=PatternType(0)).refusal() == "Unknown patternFilter."
    assert AclFilter(operation=AclOperation(99)).refusal() == "Unknown entryFilter."
    assert AclFilter(permission=AclPermissionType(0)).refusal() == "Unknown entryFilter."
    assert AclFilter().refusal() is None


# --- creation


def test_rule_of_a_request() -> None:
    assert new_rule(2, "t", 3, "User:alice", "*", 3, 3) == AclBinding(
        ResourcePattern(TOPIC, "t"), READ_BY_ALICE
    )
    named = new_rule(4, "kafka-cluster", 3, "User:a:b", "::1", 2, 2)
    assert named.entry.principal == Principal("User", "a:b")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"resource_type": 1}, "resourceType must not be ANY"),
        ({"pattern_type": 1}, "patternType must not be ANY"),
        ({"pattern_type": 2}, "patternType must not be MATCH"),
        ({"operation": 1}, "operation must not be ANY"),
        ({"permission_type": 1}, "permissionType must not be ANY"),
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"name": ""}, "Invalid empty resource name"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"pattern_type": 9}, "Invalid patternType UNKNOWN"),
        ({"operation": 99}, "Invalid operation UNKNOWN"),
        ({"permission_type": 4}, "Invalid permissionType UNKNOWN"),
        (
            {"principal": "alice"},
            "Could not parse principal from `alice` (no colon is present separating the principal "
            "type from the principal name)",
        ),
        ({"name": "", "operation": 99}, "Invalid empty resource name"),
        ({"principal": "alice", "operation": 99}, "Invalid operation UNKNOWN"),
    ],
)
def test_rule_is_refused_with_kafkas_text(changes: dict[str, object], reason: str) -> None:
    valid: dict[str, object] = {
        "resource_type": 2,
        "name": "t",
        "pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    with pytest.raises(InvalidAcl) as caught:
        new_rule(**(valid | changes))  # type: ignore[arg-type]
    assert str(caught.value) == reason


def test_every_type_has_operations_and_the_tool_refuses_others() -> None:
    assert set(SUPPORTED_OPERATIONS) == set(RESOURCE_TYPES)
    assert unsupported_operation(new_rule(2, "t", 3, "User:a", "*", AclOperation.ALL, 3)) is None
    assert unsupported_operation(new_rule(2, "t", 3, "User:a", "*", AclOperation.READ, 3)) is None
    cluster_action = new_rule(7, "u", 3, "User:a", "*", AclOperation.CLUSTER_ACTION, 3)
    assert unsupported_operation(cluster_action) == (
        "ResourceType USER only supports operations ALL, CREATE_TOKENS, DESCRIBE_TOKENS"
    )


def test_rule_reads_as_a_sentence() -> None:
    assert str(new_rule(2, "t", 4, "User:alice", "*", 3, 2)) == (
        "DENY READ for User:alice from host * on PREFIXED TOPIC t"
    )


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("*", "*"),
        ("10.0.0.1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::FFFF:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("010.0.0.1", "010.0.0.1"),
        ("255.249.199.99", "255.249.199.99"),
        ("::ffff:0.0.0.0", "0.0.0.0"),
        ("example.com", "example.com"),
        ("", ""),
    ],
)
def test_hosts_are_compared_as_addresses(host: str, key: str) -> None:
    assert host_key(host) == key


@given(st.ip_addresses())
def test_address_is_its_own_key(address: IPv4Address | IPv6Address) -> None:
    mapped = getattr(address, "ipv4_mapped", None)
    for text in (str(address), address.exploded, str(address).upper()):
        assert host_key(text) == str(mapped or address)
