"""The answers to requests that fail as a whole."""

import pytest

from barnabas.broker.handlers import (
    alter_partition_reassignments,
    describe_cluster,
    end_txn,
    list_partition_reassignments,
    list_transactions,
)
from barnabas.broker.routes import API_TABLE, ApiRow
from barnabas.broker.server import dispatch
from barnabas.protocol.apis import APIS
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import ErrorCode, errors_of
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from barnabas.protocol.schema import fields_of
from tests.support.large_messages import arrays, large_message
from tests.support.rows import row_of
from tests.support.steps import all_taken

CODE = ErrorCode.NOT_CONTROLLER
DERIVED = [row for row in API_TABLE if not hasattr(row.module, "error_response")]
ALONE = [row for row in DERIVED if row.module.RIGHTS.each is None]
OF_EACH = [row for row in DERIVED if row.module.RIGHTS.each is not None]


def test_table_serves_every_served_api_of_the_protocol_once() -> None:
    assert sorted(row.api.key for row in API_TABLE) == sorted(
        key for key, listed in APIS.items() if listed.served
    )


@pytest.mark.parametrize("row", DERIVED, ids=lambda row: row.api.name)
def test_response_can_hold_an_error_alone(row: ApiRow) -> None:
    fields = fields_of(row.api.response)
    required = [each for each in fields if dispatch._is_required(each)]
    lacking = [each.name for each in required if each.type.kind not in dispatch._EMPTY]
    assert not lacking, "give these fields a default, or the handler a function `error_response`"
    assert row in OF_EACH or "error_code" in {each.name for each in fields}, (
        "give the response a field `error_code`, or the handler a function `error_response`"
    )


@pytest.mark.parametrize("row", ALONE, ids=lambda row: row.api.name)
def test_derived_error_answer_has_the_error_in_every_version_with_the_field(row: ApiRow) -> None:
    for version in row.versions:
        answer = all_taken(row.refuse(None, CODE, version))
        read = decode(row.api.response, version, encode(answer, version))
        since = 3 if row.api.name == "DescribeLogDirs" else 0
        assert read.error_code == (CODE if version >= since else 0)


@pytest.mark.parametrize("row", OF_EACH, ids=lambda row: row.api.name)
def test_derived_error_answer_has_the_error_of_each_element_in_every_version(row: ApiRow) -> None:
    each = row.module.RIGHTS.each
    assert each is not None
    for version in row.versions:
        most = 0
        for path in arrays(row.api.request, version):
            if path[0].name == each.elements:
                request = large_message(row.api.request, version, path, 3, distinct=True)
                answer = all_taken(row.refuse(request, CODE, version))
                read = decode(row.api.response, version, encode(answer, version))
                assert len(getattr(read, each.answers)) == len(getattr(request, each.elements))
                if hasattr(read, "error_code"):
                    read.error_code = 0
                codes = errors_of(row.api.response)(read)
                assert set(codes) <= {CODE}
                most = max(most, len(codes))
        # As in Kafka, an ongoing reassignment has no error of its own.
        assert most == (0 if row.module is list_partition_reassignments else 3)


@pytest.mark.parametrize("row", OF_EACH, ids=lambda row: row.api.name)
def test_derived_error_answer_has_the_error_at_its_top_too(row: ApiRow) -> None:
    for version in row.versions:
        answer = all_taken(row.refuse(large_message(row.api.request, version), CODE, version))
        read = decode(row.api.response, version, encode(answer, version))
        since = {"ElectLeaders": 1, "Metadata": 13}.get(row.api.name, 0)
        assert getattr(read, "error_code", CODE) == (CODE if version >= since else 0)


def test_derived_error_answer_has_defaults_empty_arrays_and_the_text_of_the_code() -> None:
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    cluster = all_taken(row_of(describe_cluster).refuse(None, code, 1))
    assert (cluster.error_message, cluster.cluster_id, len(cluster.brokers)) == (code.text, "", 0)
    assert all_taken(row_of(end_txn).refuse(None, code, 5)).producer_id == -1
    assert len(all_taken(row_of(list_transactions).refuse(None, code, 2)).transaction_states) == 0


def test_refused_reassignment_does_not_repeat_what_was_asked_for() -> None:
    """As in Kafka: the field of the response tells what was done."""
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=0, topics=[], allow_replication_factor_change=False
    )
    answer = all_taken(row_of(alter_partition_reassignments).refuse(request, CODE, 1))
    assert (answer.error_code, answer.allow_replication_factor_change) == (CODE, True)
