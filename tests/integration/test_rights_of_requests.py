"""Every API in every version: what it asks for, and its refusals, compared with Kafka's table."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.types import ZERO_UUID
from tests.support.rights import ASKED, NAME, REFUSALS, ROWS, Judged, ask, judged, transactional
from tests.support.waiting import eventually


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Judged]:
    async with judged(tmp_path) as found:
        yield found


def test_table_has_every_api_and_version() -> None:
    for api, row in ROWS.items():
        found = {version for each in ASKED if each.api == api for version in each.versions}
        left_out = set(row.versions) - found
        # These have no answer, or one without an error.
        known = {"DescribeLogDirs": {1, 2}, "ExpectProducers": {0}}.get(api, set())
        assert left_out <= known, f"add {api} to ASKED in tests/support/rights.py"


async def test_without_rights_everything_is_refused(broker: Judged) -> None:
    for asked in ASKED:
        for version in asked.versions:
            codes = await broker.codes(asked, version, ())
            if asked.needs:
                assert codes, f"{asked.api} v{version} is allowed"
                assert codes <= REFUSALS, f"{asked.api} v{version}: {codes}"
            else:
                assert not codes & REFUSALS, f"{asked.api} v{version}"


async def test_each_request_needs_the_rights_that_kafka_asks_for(broker: Judged) -> None:
    faults = []
    for asked in ASKED:
        for version in {asked.versions[0], asked.versions[-1]}:
            faults += [fault async for fault in broker.faults(asked, version)]
    assert not faults, "\n".join(faults)


async def test_partitions_join_a_transaction_together_or_not_at_all(broker: Judged) -> None:
    def with_another(request: AddPartitionsToTxnRequest) -> None:
        request.v3_and_below_topics[0].partitions = [0]
        request.v3_and_below_topics.append(AddPartitionsToTxnTopic(name="other", partitions=[0]))

    asked = ask("AddPartitionsToTxn", then=with_another)
    rights = ("WRITE TRANSACTIONAL_ID", "WRITE TOPIC")
    for version in range(4):
        answer = await broker.answer(asked, version, rights)
        codes = {
            topic.name: topic.results_by_partition[0].partition_error_code
            for topic in answer.results_by_topic_v3_and_below
        }
        assert codes == {
            NAME: ErrorCode.OPERATION_NOT_ATTEMPTED,
            "other": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        }


async def test_configuration_of_a_created_topic_is_withheld(broker: Judged) -> None:
    def named(name: str) -> Callable[[CreateTopicsRequest], None]:
        def change(request: CreateTopicsRequest) -> None:
            new = CreatableTopic(
                name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            request.topics, request.validate_only = [new], False

        return change

    await broker.codes(ask("ApiVersions"), 0, ())
    for name, more in (("hidden", ()), (NAME * 2, ("DESCRIBE_CONFIGS TOPIC",))):
        asked = ask("CreateTopics", then=named(name))
        with patch("tests.support.rights.NAME", name):
            (topic,) = (await broker.answer(asked, 7, ("CREATE TOPIC", *more))).topics
        assert topic.error_code == 0
        assert topic.topic_id != ZERO_UUID
        assert (topic.topic_config_error_code, topic.num_partitions, bool(topic.configs)) == (
            (0, 1, True) if more else (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, False)
        )


async def test_name_of_a_topic_id_is_told_to_those_who_may_describe_the_topic(
    broker: Judged,
) -> None:
    asked = next(each for each in ASKED if each.api == "DeleteTopics" and 6 in each.versions)
    for allowed, name in (((), None), (("DESCRIBE TOPIC",), NAME)):
        (topic,) = (await broker.answer(asked, 6, allowed)).responses
        assert (topic.error_code, topic.name) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)


async def test_lists_leave_out_what_the_client_may_not_see(broker: Judged) -> None:
    def of_first_partition(request: OffsetCommitRequest) -> None:
        request.topics[0].partitions[0].partition_index = 0

    change = {"generation_id_or_member_epoch": -1, "member_id": ""}
    join = ask("OffsetCommit", **change, then=of_first_partition)
    begin = ask("InitProducerId", producer_id=-1, producer_epoch=-1)
    every = ("READ GROUP", "READ TOPIC", "WRITE TRANSACTIONAL_ID", "DESCRIBE GROUP")

    async def exist() -> bool:
        coordinators = (ask("FindCoordinator", key_type=0), ask("FindCoordinator"))
        for each in coordinators:
            await broker.codes(each, 3, (*every, "DESCRIBE TRANSACTIONAL_ID"))
        return not (await broker.codes(join, 2, every) or await broker.codes(begin, 1, every))

    await eventually(exist)
    groups = ask("ListGroups", then=_unfiltered)
    for allowed in ((), ("DESCRIBE GROUP",), ("DESCRIBE CLUSTER",)):
        answer = await broker.answer(groups, 0, allowed)
        assert [each.group_id for each in answer.groups] == [NAME] * bool(allowed)
    transactions = ask("ListTransactions", then=_unfiltered)
    for allowed in ((), ("DESCRIBE TRANSACTIONAL_ID",)):
        answer = await broker.answer(transactions, 0, allowed)
        found = [each.transactional_id for each in answer.transaction_states]
        assert found == [NAME] * bool(allowed)


def _unfiltered(request: Any) -> None:
    for name in ("states_filter", "types_filter", "state_filters", "producer_id_filters"):
        if hasattr(request, name):
            setattr(request, name, [])


async def test_refusal_to_join_a_group_has_no_member_id(broker: Judged) -> None:
    answer = await broker.answer(ask("JoinGroup"), 9, ())
    assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, "")


async def test_oldest_list_of_directories_is_empty_in_place_of_an_error(broker: Judged) -> None:
    asked = ask("DescribeLogDirs", then=lambda request: setattr(request, "topics", None))
    for version in (1, 2):
        assert (await broker.answer(asked, version, ())).results == []
        assert (await broker.answer(asked, version, ("DESCRIBE CLUSTER",))).results


async def test_transactional_batch_needs_an_id_before_the_right_to_its_topic(
    broker: Judged,
) -> None:
    def without_id(request: ProduceRequest) -> None:
        request.transactional_id = None
        request.topic_data[0].partition_data[0].records = transactional()

    asked = ask("Produce", then=without_id)
    for allowed in ((), ("WRITE TOPIC",), ("WRITE TRANSACTIONAL_ID",)):
        codes = await broker.codes(asked, 12, allowed)
        assert codes == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
