"""The nodes of access control rules, byte for byte as Kafka 3.9 writes them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.cluster import acl_znodes
from barnabas.broker.cluster.znodes import ZnodeError
from barnabas.broker.store.tree import check_path
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

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
DENY_BOB = AccessControlEntry(
    Principal("User", "CN=b:ob,O=x"),
    "10.0.0.1",
    AclOperation.CLUSTER_ACTION,
    AclPermissionType.DENY,
)
VALID = {"principal": "User:a", "permissionType": "Deny", "operation": "Read", "host": "*"}

texts = st.text(st.characters(codec="utf-8"), max_size=10)
entries = st.builds(
    AccessControlEntry,
    st.builds(Principal, texts.filter(lambda kind: ":" not in kind), texts),
    texts,
    st.sampled_from(list(AclOperation)[2:]),
    st.sampled_from([AclPermissionType.DENY, AclPermissionType.ALLOW]),
)
patterns = st.builds(
    ResourcePattern,
    st.sampled_from(RESOURCE_TYPES),
    texts.filter(acl_znodes.is_storable),
    st.sampled_from([LITERAL, PREFIXED]),
)


def test_paths_are_those_of_kafka() -> None:
    transactional = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "t-1", PREFIXED)
    assert acl_znodes.rules_path(transactional) == (
        "/kafka-acl-extended/prefixed/TransactionalId/t-1"
    )
    assert acl_znodes.rules_path(ResourcePattern(ResourceType.TOPIC, "*")) == "/kafka-acl/Topic/*"
    assert acl_znodes.change_path(LITERAL) == "/kafka-acl-changes/acl_changes_"
    assert acl_znodes.change_path(PREFIXED) == "/kafka-acl-extended-changes/acl_changes_"


def test_rules_are_written_as_kafka_writes_them() -> None:
    assert acl_znodes.encode_rules([DENY_BOB]) == (
        b'{"version":1,"acls":[{"principal":"User:CN=b:ob,O=x","permissionType":"Deny",'
        b'"operation":"ClusterAction","host":"10.0.0.1"}]}'
    )


def test_changes_are_written_as_kafka_writes_them() -> None:
    pattern = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "a:b")
    assert acl_znodes.encode_change(pattern) == b"TRANSACTIONAL_ID:a:b"
    assert acl_znodes.encode_change(pattern._replace(pattern_type=PREFIXED)) == (
        b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"a:b","patternType":"PREFIXED"}'
    )


@given(st.lists(entries, max_size=5), patterns)
def test_nodes_round_trip(stored: list[AccessControlEntry], pattern: ResourcePattern) -> None:
    assert acl_znodes.decode_rules(acl_znodes.encode_rules(stored)) == tuple(stored)
    change = acl_znodes.encode_change(pattern)
    assert acl_znodes.decode_change(pattern.pattern_type, change) == pattern


def test_node_without_content_has_no_rules() -> None:
    assert acl_znodes.decode_rules(b"") == ()


def acls(**changes: object) -> bytes:
    return json.dumps({"version": 1, "acls": [VALID, VALID | changes]}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"version":1}',
        b'{"version":2,"acls":[]}',
        b'{"version":1,"acls":[1]}',
        b'{"version":1,"acls":7}',
        acls(operation="read"),
        acls(operation="Unknown"),
        acls(operation="Any"),
        acls(operation="OfTheFuture"),
        acls(permissionType="Any"),
        acls(permissionType=None),
        acls(principal="alice"),
        acls(principal=None),
        acls(principal="User:\ud800"),
        acls(host=7),
        acls(host="\udfff"),
        acls() + b" " * acl_znodes.MAX_NODE_BYTES,
    ],
    ids=lambda data: repr(data[:100]),
)
def test_rules_that_may_deny_in_a_way_not_understood_are_an_error(data: bytes) -> None:
    with pytest.raises(ZnodeError):
        acl_znodes.decode_rules(data)
    assert acl_znodes.decode_rules(acls()) != ()


@pytest.mark.parametrize(
    ("how", "data"),
    [
        (LITERAL, b""),
        (LITERAL, b"TOPIC"),
        (LITERAL, b"TOPIC:"),
        (LITERAL, b"TOPIC:a/b"),
        (LITERAL, b"ANY:t"),
        (LITERAL, b"Foo:t"),
        (LITERAL, b"\xff"),
        (PREFIXED, b"TOPIC:t"),
        (PREFIXED, b"{}"),
        (PREFIXED, b'{"version":2,"resourceType":"TOPIC","name":"t","patternType":"PREFIXED"}'),
        (PREFIXED, b'{"version":1,"resourceType":"TOPIC","name":"t","patternType":"LITERAL"}'),
        (PREFIXED, b'{"version":1,"resourceType":"TOPIC","name":7,"patternType":"PREFIXED"}'),
    ],
)
def test_other_notifications_are_an_error(how: PatternType, data: bytes) -> None:
    with pytest.raises(ZnodeError):
        acl_znodes.decode_change(how, data)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "\0", "a\n", "\x7f", "\ue000", "\uffff"])
def test_names_that_zookeeper_refuses_are_not_storable(name: str) -> None:
    assert not acl_znodes.is_storable(name)


@given(texts)
def test_storable_names_are_names_of_nodes(name: str) -> None:
    if acl_znodes.is_storable(name):
        path = acl_znodes.rules_path(ResourcePattern(ResourceType.GROUP, name))
        check_path(path)
        assert path.rpartition("/")[2] == name
