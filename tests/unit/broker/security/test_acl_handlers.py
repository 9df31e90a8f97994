"""CreateAcls, DescribeAcls and DeleteAcls, on the rules of an embedded store."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from barnabas.broker.handlers import create_acls, delete_acls, describe_acls
from barnabas.broker.handlers.create_acls import NO_AUTHORIZER
from barnabas.broker.security.cluster_acls import ClusterAcls
from barnabas.broker.server.context import RequestContext
from barnabas.broker.store.embedded import EmbeddedStore
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.security.principal import ANONYMOUS
from tests.support.rows import row_of
from tests.support.steps import all_taken

READ, ALLOW, TOPIC, LITERAL, PREFIXED, ANY = 3, 3, 2, 3, 4, 1
CONTEXT = RequestContext(0, 3, 0, "c", ANONYMOUS, "L", "127.0.0.1", 1, 0)


@pytest.fixture
async def acls(store: EmbeddedStore) -> AsyncIterator[ClusterAcls]:
    acls = ClusterAcls(store.session())
    await acls.start(lambda: None)
    yield acls
    acls.stop()


def creation(name: str, **values: Any) -> AclCreation:
    rule: dict[str, Any] = {
        "resource_type": TOPIC,
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return AclCreation(resource_name=name, **(rule | values))


def chosen(name: str | None, **values: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": TOPIC,
        "resource_name_filter": name,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    } | values


async def create(acls: ClusterAcls, *creations: AclCreation) -> list[tuple[int, str | None]]:
    request = CreateAclsRequest(creations=list(creations))
    response = await all_taken(create_acls.handle(acls, request, CONTEXT))
    return [(each.error_code, each.error_message) for each in response.results]


async def delete(acls: ClusterAcls, *filters: dict[str, Any]) -> Any:
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**each) for each in filters])
    return (await all_taken(delete_acls.handle(acls, request, CONTEXT))).filter_results


def describe(acls: ClusterAcls, name: str | None, **values: Any) -> Any:
    request = DescribeAclsRequest(**chosen(name, **values))
    return all_taken(describe_acls.handle(acls, request, CONTEXT))


def described(acls: ClusterAcls, name: str | None, **values: Any) -> list[tuple[str, int, int]]:
    response = describe(acls, name, **values)
    assert response.error_code == ErrorCode.NONE
    return [(each.resource_name, each.pattern_type, len(each.acls)) for each in response.resources]


async def test_created_rules_are_described_by_resource(acls: ClusterAcls) -> None:
    results = await create(
        acls,
        creation("a"),
        creation("a", principal="User:bob"),
        creation("b", resource_pattern_type=PREFIXED),
    )
    assert results == [(0, None)] * 3
    assert sorted(described(acls, None)) == [("a", LITERAL, 2), ("b", PREFIXED, 1)]
    assert described(acls, None, principal_filter="User:bob") == [("a", LITERAL, 1)]
    assert described(acls, "c") == []


async def test_invalid_rule_has_its_reason_and_the_others_are_created(acls: ClusterAcls) -> None:
    invalid, created, unstorable = await create(
        acls, creation("a", operation=ANY), creation("b"), creation("c/d")
    )
    assert invalid == (ErrorCode.INVALID_REQUEST, "operation must not be ANY")
    assert created == (0, None)
    assert unstorable[0] == ErrorCode.INVALID_REQUEST
    assert described(acls, None) == [("b", LITERAL, 1)]


async def test_deleted_rules_are_named_by_filter(acls: ClusterAcls) -> None:
    await create(acls, creation("a"), creation("b"))
    none, one = await delete(acls, chosen("c"), chosen("a"))
    assert none.matching_acls == []
    (deleted,) = one.matching_acls
    assert (deleted.resource_name, deleted.principal, deleted.error_code) == ("a", "User:alice", 0)
    assert described(acls, None) == [("b", LITERAL, 1)]


async def test_invalid_filter_deletes_nothing_and_valid_ones_beside_it_work(
    acls: ClusterAcls,
) -> None:
    await create(acls, creation("a"), creation("b"))
    invalid, valid = await delete(acls, chosen("b", operation=100), chosen("a"))
    assert (invalid.error_code, invalid.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Unknown entryFilter.",
    )
    assert len(valid.matching_acls) == 1
    assert described(acls, None) == [("b", LITERAL, 1)]


async def test_unknown_code_in_a_filter_is_an_invalid_request(acls: ClusterAcls) -> None:
    response = describe(acls, None, resource_type_filter=100)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def test_rules_that_are_not_loaded_are_no_empty_answer(store: EmbeddedStore) -> None:
    response = describe(ClusterAcls(store.session()), None)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("module", "request_"),
    [
        (create_acls, CreateAclsRequest(creations=[creation("a")])),
        (delete_acls, DeleteAclsRequest(filters=[DeleteAclsFilter(**chosen("a"))])),
    ],
)
def test_without_an_authorizer_each_element_has_the_reason(module: Any, request_: Any) -> None:
    with pytest.raises(KafkaError) as refused:
        all_taken(module.handle(None, request_, CONTEXT))
    response = all_taken(row_of(module).refuse(request_, refused.value.code, 3))
    (result,) = response.results if module is create_acls else response.filter_results
    assert (result.error_code, result.error_message) == (
        ErrorCode.SECURITY_DISABLED,
        NO_AUTHORIZER,
    )
