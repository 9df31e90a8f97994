"""Version 0 of the messages about access control rules: kio and kafka-python begin with 1."""

from typing import Any

import pytest

from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from barnabas.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from barnabas.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

TOPIC, PREFIXED, READ, ALLOW = 2, 4, 3, 3
RULE: dict[str, Any] = {
    "principal": "User:a",
    "host": "*",
    "operation": READ,
    "permission_type": ALLOW,
}
RULE_BYTES = b"\0\x06User:a\0\x01*\x03\x03"
FILTER: dict[str, Any] = {
    "resource_type_filter": TOPIC,
    "resource_name_filter": None,
    "principal_filter": "User:a",
    "host_filter": None,
    "operation": READ,
    "permission_type": ALLOW,
}
FILTER_BYTES = b"\x02\xff\xff\0\x06User:a\xff\xff\x03\x03"
TIME, FINE, ONE = b"\0\0\0\x07", b"\0\0\xff\xff", b"\0\0\0\x01"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            CreateAclsRequest(
                creations=[AclCreation(resource_type=TOPIC, resource_name="t", **RULE)]
            ),
            ONE + b"\x02\0\x01t" + RULE_BYTES,
        ),
        (
            CreateAclsResponse(throttle_time_ms=7, results=[AclCreationResult()]),
            TIME + ONE + FINE,
        ),
        (DescribeAclsRequest(**FILTER), FILTER_BYTES),
        (
            DescribeAclsResponse(
                throttle_time_ms=7,
                resources=[
                    DescribeAclsResource(
                        resource_type=TOPIC, resource_name="t", acls=[AclDescription(**RULE)]
                    )
                ],
            ),
            TIME + FINE + ONE + b"\x02\0\x01t" + ONE + RULE_BYTES,
        ),
        (DeleteAclsRequest(filters=[DeleteAclsFilter(**FILTER)]), ONE + FILTER_BYTES),
        (
            DeleteAclsResponse(
                throttle_time_ms=7,
                filter_results=[
                    DeleteAclsFilterResult(
                        matching_acls=[
                            DeleteAclsMatchingAcl(resource_type=TOPIC, resource_name="t", **RULE)
                        ]
                    )
                ],
            ),
            TIME + ONE + FINE + ONE + FINE + b"\x02\0\x01t" + RULE_BYTES,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_version_0_has_no_pattern_type(message: Any, expected: bytes) -> None:
    assert encode(message, 0) == expected
    assert decode(type(message), 0, expected) == message


def test_prefixed_rule_does_not_fit_in_version_0() -> None:
    rule = AclCreation(
        resource_type=TOPIC, resource_name="t", resource_pattern_type=PREFIXED, **RULE
    )
    with pytest.raises(ProtocolError):
        encode(CreateAclsRequest(creations=[rule]), 0)
