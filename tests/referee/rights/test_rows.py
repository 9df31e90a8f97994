"""The rows are complete, and their requests can be sent."""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.broker.routes import API_TABLE, ApiRow
from barnabas.broker.security.rights import Need
from barnabas.protocol.codec import encode
from barnabas.security.acl.rules import AclOperation, ResourceType
from tests.referee.rights.cases import CLIENTS, GIVEN, cases
from tests.referee.rights.rows import ROWS

NO_RIGHTS = {
    *("ApiVersions", "SaslHandshake", "SaslAuthenticate"),
    *("RenewDelegationToken", "ExpireDelegationToken"),
}
WITHOUT_OWNER = {"CreateDelegationToken v1", "CreateDelegationToken v2"}
"""A principal needs no right for tokens of its own."""


def test_every_api_for_clients_has_a_row_for_each_version() -> None:
    asked = defaultdict(set)
    for row in ROWS:
        assert encode(row.request(GIVEN), row.version)
        asked[row.api.key].update(row.versions())
    names = {row.api.key: row.api.name for row in API_TABLE}
    lacking = {
        f"{names[key]} v{version}"
        for key, versions in CLIENTS.items()
        if names[key] not in NO_RIGHTS
        for version in set(versions) - asked[key]
    }
    assert lacking == WITHOUT_OWNER, "add rows to tests/referee/rights/rows.py"


class Declared(NamedTuple):
    """A right that an API needs."""

    api: str
    operation: AclOperation
    type: ResourceType


EXEMPT = {
    Declared("DescribeTransactions", AclOperation.DESCRIBE, ResourceType.CLUSTER): (
        "Kafka's request cannot ask for events; tests/integration/test_rights.py has the case"
    ),
    Declared("ConsumerGroupDescribe", AclOperation.DESCRIBE, ResourceType.TOPIC): (
        "it needs a member; tests/unit/broker/handlers/test_consumer_group_describe.py has the case"
    ),
}
"""The declared rights without a row, with the reason."""


def declared(row: ApiRow) -> Iterator[Declared]:
    """Yield the rights that clients need for an API, and those that are enough instead."""
    rights = row.module.RIGHTS
    needs: list[Need] = [*rights.whole, *rights.inside]
    needs += rights.each.needs if rights.each is not None else ()
    needs += (rights.shown.need,) if rights.shown is not None else ()
    for need in needs:
        if need.versions is None or {*need.versions} & {*row.clients}:
            yield Declared(row.api.name, need.operation, need.type)
            if need.unless is not None:
                yield Declared(row.api.name, need.unless.operation, need.unless.type)


def test_every_declared_right_has_a_row() -> None:
    wanted = {right for row in API_TABLE if row.api.key in CLIENTS for right in declared(row)}
    tested = {Declared(row.api.name, row.right.operation, row.right.type) for row in ROWS}
    assert wanted - tested == EXEMPT.keys(), "add rows to tests/referee/rights/rows.py"


def test_cases_share_no_principal() -> None:
    principals = [case.principal for case in cases(ROWS)]
    assert len(set(principals)) == len(principals) >= 450
