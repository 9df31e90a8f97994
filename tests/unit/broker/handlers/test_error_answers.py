"""The answers to requests that fail as a whole."""

import pytest

from barnabas.broker.handlers import describe_cluster, end_txn, list_transactions
from barnabas.broker.routes import API_TABLE, ApiRow
from barnabas.broker.server.dispatch import error_alone
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.schema import APIS

ALONE = [row for row in API_TABLE if not hasattr(row.module, "error_response")]


def test_table_serves_every_api_of_the_protocol_once() -> None:
    assert sorted(row.api.key for row in API_TABLE) == sorted(APIS)


@pytest.mark.parametrize("row", ALONE, ids=lambda row: row.api.name)
def test_derived_error_answer_has_the_error_in_every_version_with_the_field(row: ApiRow) -> None:
    code = ErrorCode.NOT_CONTROLLER
    for version in row.versions:
        answer = error_alone(row.api.response, code)
        read = decode(row.api.response, version, encode(answer, version))
        since = 3 if row.api.name == "DescribeLogDirs" else 0
        assert read.error_code == (code if version >= since else 0)


def test_derived_error_answer_has_defaults_empty_arrays_and_the_text_of_the_code() -> None:
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    cluster = error_alone(describe_cluster.API.response, code)
    assert (cluster.error_message, cluster.cluster_id, len(cluster.brokers)) == (code.text, "", 0)
    assert error_alone(end_txn.API.response, code).producer_id == -1
    assert len(error_alone(list_transactions.API.response, code).transaction_states) == 0
