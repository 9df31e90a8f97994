"""TxnOffsetCommit: the verification before the first offset of a transaction, and its errors."""

import asyncio
from typing import Any

import pytest

from barnabas.broker.handlers import txn_offset_commit
from barnabas.broker.server.dispatch import Route
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.support.coordinator.harness import EPOCH, GROUP, PRODUCER, Groups
from tests.support.rows import row_of
from tests.support.steps import all_taken
from tests.unit.broker.handlers.fake_verifier import FakeVerifier
from tests.unit.broker.handlers.group_handlers import Topics, ask, topic_id_of

OFFSETS_0 = ("__consumer_offsets", 0)
VERSIONS = list(txn_offset_commit.API.versions)


class Rig:
    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.verifier = FakeVerifier()
        self.parts = groups.coordinator, Topics("t", "u"), self.verifier, None

    def commit(
        self,
        version: int = 5,
        *,
        group_id: str = GROUP,
        member_id: str = "",
        generation: int = -1,
        **topics: list[int],
    ) -> Any:
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=group_id,
            producer_id=PRODUCER,
            producer_epoch=EPOCH,
            member_id=member_id,
            generation_id=generation,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=name,
                    topic_id=topic_id_of(name),
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=each, committed_offset=7, committed_metadata=""
                        )
                        for each in partitions
                    ],
                )
                for name, partitions in (topics or {"t": [0]}).items()
            ],
        )
        return ask(txn_offset_commit, self.parts, request, version)

    def code(self, version: int = 5, **options: Any) -> str:
        """Return the error of the first partition."""
        (code, *_) = codes(self.commit(version, **options))
        return code


def codes(answer: Any) -> list[str]:
    return [
        ErrorCode.of(partition.error_code).name
        for topic in answer.topics
        for partition in topic.partitions
    ]


@pytest.fixture
async def rig() -> Rig:
    return Rig(await Groups().load())


@pytest.mark.parametrize("version", VERSIONS)
async def test_offsets_are_pending_in_every_version(rig: Rig, version: int) -> None:
    assert rig.code(version) == "NONE"
    assert rig.verifier.asked == [("x", (PRODUCER, EPOCH), [OFFSETS_0], version >= 5)]
    assert rig.groups.is_pending()
    rig.groups.end()
    assert rig.groups.offset() == 7


async def test_open_transaction_is_not_verified_again(rig: Rig) -> None:
    assert [rig.code(), rig.code()] == ["NONE", "NONE"]
    assert len(rig.verifier.asked) == 1
    assert rig.groups.log.guards[0] is not None
    assert rig.groups.log.guards[1] is None


async def test_older_clients_are_not_verified_if_switched_off(rig: Rig) -> None:
    rig.verifier.verifies = False
    assert rig.code(4) == "NONE"
    assert rig.verifier.asked == []
    rig.groups.end()
    assert rig.code(5) == "NONE"
    assert len(rig.verifier.asked) == 1


async def test_answer_waits_for_coordinator_and_commit(rig: Rig) -> None:
    rig.verifier.later = asyncio.get_running_loop().create_future()
    rig.groups.log.held = True
    answer = rig.commit()
    await asyncio.sleep(0)
    assert rig.groups.log.record_count == 0
    rig.verifier.later.set_result({OFFSETS_0: ErrorCode.NONE})
    for _ in range(5):
        await asyncio.sleep(0)
    assert rig.groups.log.record_count == 1
    assert not answer.done()
    rig.groups.log.release()
    assert codes(await answer) == ["NONE"]
    assert rig.groups.is_pending()


async def test_client_that_disconnects_while_the_coordinator_is_asked_commits_nothing(
    rig: Rig,
) -> None:
    rig.verifier.later = asyncio.get_running_loop().create_future()
    answer = rig.commit()
    await asyncio.sleep(0)
    answer.cancel()
    await asyncio.sleep(0)
    assert rig.verifier.later.cancelled()
    assert rig.groups.log.record_count == 0


async def test_member_is_checked_after_coordinator_answers(rig: Rig) -> None:
    """A rebalance in between must not let an older generation through."""
    (member,) = await rig.groups.stable()
    before = rig.groups.log.record_count
    rig.verifier.later = asyncio.get_running_loop().create_future()
    answer = rig.commit(member_id=member, generation=1)
    rig.groups.join(member, protocols=(("range", b"other"),))
    rig.groups.time.pass_ms(3_000)
    assert rig.groups.group.generation == 2
    rig.verifier.later.set_result({OFFSETS_0: ErrorCode.NONE})
    assert codes(await answer) == ["ILLEGAL_GENERATION"]
    assert rig.groups.log.record_count == before


async def test_marker_in_between_invalidates_guard(rig: Rig) -> None:
    rig.verifier.later = asyncio.get_running_loop().create_future()
    answer = rig.commit()
    rig.groups.log.refusal = KafkaError(ErrorCode.INVALID_TXN_STATE)
    rig.verifier.later.set_result({OFFSETS_0: ErrorCode.NONE})
    assert codes(await answer) == ["INVALID_TXN_STATE"]


async def test_late_refusal_is_reported(rig: Rig) -> None:
    rig.verifier.later = asyncio.get_running_loop().create_future()
    answer = rig.commit()
    rig.verifier.later.set_result({OFFSETS_0: ErrorCode.CONCURRENT_TRANSACTIONS})
    assert codes(await answer) == ["CONCURRENT_TRANSACTIONS"]
    assert rig.groups.log.record_count == 0


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        ("PRODUCER_FENCED", 5, "INVALID_PRODUCER_EPOCH"),
        ("INVALID_PRODUCER_ID_MAPPING", 3, "INVALID_PRODUCER_ID_MAPPING"),
        ("TRANSACTION_ABORTABLE", 3, "INVALID_TXN_STATE"),
        ("TRANSACTION_ABORTABLE", 4, "TRANSACTION_ABORTABLE"),
        ("CONCURRENT_TRANSACTIONS", 5, "CONCURRENT_TRANSACTIONS"),
        ("NETWORK_EXCEPTION", 2, "COORDINATOR_LOAD_IN_PROGRESS"),
        ("NETWORK_EXCEPTION", 1, "COORDINATOR_NOT_AVAILABLE"),
        ("COORDINATOR_LOAD_IN_PROGRESS", 2, "COORDINATOR_LOAD_IN_PROGRESS"),
        ("COORDINATOR_LOAD_IN_PROGRESS", 1, "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_COORDINATOR", 0, "NOT_COORDINATOR"),
    ],
)
async def test_coordinator_error_is_translated_for_client(
    rig: Rig, said: str, version: int, told: str
) -> None:
    rig.verifier.code = ErrorCode[said]
    assert rig.code(version) == told
    assert rig.groups.log.record_count == 0


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_EPOCH"),
        ("NOT_LEADER_OR_FOLLOWER", "NOT_COORDINATOR"),
        ("KAFKA_STORAGE_ERROR", "NOT_COORDINATOR"),
        ("NOT_ENOUGH_REPLICAS", "COORDINATOR_NOT_AVAILABLE"),
    ],
)
@pytest.mark.parametrize("already_open", [False, True])
async def test_log_error_is_translated_to_coordinator_error(
    rig: Rig, fault: str, told: str, already_open: bool
) -> None:
    if already_open:
        rig.verifier.verifies = False
    rig.groups.log.refusal = KafkaError(ErrorCode[fault])
    assert rig.code(4) == told


async def test_unknown_partitions_are_refused_beside_the_others(rig: Rig) -> None:
    answer = rig.commit(t=[1, 9, 0], none=[0])
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert codes(answer) == ["NONE", unknown, "NONE", unknown]
    assert rig.groups.log.record_count == 2


async def test_unknown_partitions_are_not_verified(rig: Rig) -> None:
    assert rig.code(none=[0]) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert rig.verifier.asked == []


@pytest.mark.parametrize("verifies", [True, False])
async def test_empty_group_id_is_refused(rig: Rig, verifies: bool) -> None:
    rig.verifier.verifies = verifies
    assert rig.code(4, group_id="") == "INVALID_GROUP_ID"
    assert rig.verifier.asked == []


async def test_resigned_coordinator_returns_not_coordinator(rig: Rig) -> None:
    rig.groups.runtime.resigned(0)
    assert rig.code() == "NOT_COORDINATOR"


def test_request_error_is_repeated_for_every_partition() -> None:
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=GROUP,
        producer_id=1,
        producer_epoch=0,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=each, committed_offset=1, committed_metadata=None
                    )
                    for each in (0, 1)
                ],
            )
        ],
    )
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    row = row_of(txn_offset_commit)
    route = Route(row.api, row.versions, pytest.fail, row.refuse)
    answer = all_taken(route.refuse(request, code, 1))
    assert codes(answer) == ["COORDINATOR_NOT_AVAILABLE"] * 2
