"""The rows are complete, and their requests can be sent."""

from collections import defaultdict

from barnabas.broker.routes import API_TABLE
from barnabas.protocol.codec import encode
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
    assert lacking == WITHOUT_OWNER


def test_cases_share_no_principal() -> None:
    principals = [case.principal for case in cases(ROWS)]
    assert len(set(principals)) == len(principals) >= 450
