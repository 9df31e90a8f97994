"""The rows are complete, and their requests can be sent."""

import pytest

from barnabas.broker.routes import API_TABLE
from barnabas.protocol.codec import encode
from barnabas.protocol.types import ZERO_UUID
from tests.referee.rights.cases import Given, Row, cases
from tests.referee.rights.rows import ROWS

GIVEN = Given("name", ZERO_UUID, producer_id=1, epoch=0)
NO_RIGHTS = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
NOT_YET = {"DescribeUserScramCredentials", "AlterUserScramCredentials"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_request_can_be_encoded(row: Row) -> None:
    assert encode(row.request(GIVEN), row.version)


def test_every_api_for_clients_has_a_row() -> None:
    served = {row.api.request: row.api.name for row in API_TABLE if row.clients}
    asked = {served[type(row.request(GIVEN))] for row in ROWS}
    assert set(served.values()) - asked == NO_RIGHTS | NOT_YET


def test_cases_share_no_principal() -> None:
    principals = [case.principal for case in cases(ROWS)]
    assert len(set(principals)) == len(principals) >= 450
    assert max(map(len, principals)) <= 64
