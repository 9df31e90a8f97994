"""Heartbeat, OffsetCommit and TxnOffsetCommit that repeat: a broker that remembers them and one
that does not have the same answers, logs and groups."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from barnabas.broker.groups import known_offsets
from barnabas.broker.handlers import heartbeat as beating
from barnabas.broker.handlers import txn_offset_commit as in_transaction
from barnabas.client.connection import Connection
from barnabas.coordinator.group.coordinator import GroupCoordinator
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    create_partitions,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from tests.simulation.repeats.produce import Producer
from tests.simulation.repeats.twins import Twins, twins
from tests.support.mutants import finds, hunt

GROUP = "g"
LATEST = 10


class Rig:
    """Two brokers with the topics `t` and `u`, and a group."""

    def __init__(self, pair: Twins) -> None:
        self.twins = pair
        self.member_id, self.generation = "", -1
        pair.create("t", 2)
        pair.create("u", 1)
        asked = find_coordinator.FindCoordinatorRequest(coordinator_keys=[GROUP], key_type=0)
        pair.ask(find_coordinator, asked)
        pair.wait(3)

    @property
    def served(self) -> int:
        """The requests that were answered from memory."""
        return self.twins.hits_of(heartbeat, offset_commit, txn_offset_commit)

    def joining(self, member_id: str, rebalance_timeout_ms: int) -> Any:
        return join_group.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )

    def join(self) -> None:
        joined = self.twins.ask(join_group, self.joining(self.member_id, 10_000), 3)
        self.member_id, self.generation = joined.member_id, joined.generation_id
        identity = {"generation_id": self.generation, "member_id": self.member_id}
        assigned = sync_group.SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"")
        request = sync_group.SyncGroupRequest(group_id=GROUP, assignments=[assigned], **identity)
        assert not self.twins.ask(sync_group, request, 2).error_code

    def beat(self) -> str:
        request = heartbeat.HeartbeatRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.member_id
        )
        return ErrorCode(self.twins.ask(heartbeat, request, 4).error_code).name

    def commit(
        self,
        *offsets: tuple[str, int, int],
        version: int = 8,
        producer: Producer | None = None,
        metadata: str = "",
    ) -> list[str]:
        """Commit offsets of partitions, perhaps in a transaction; return the errors."""
        module: Any = offset_commit if producer is None else txn_offset_commit
        make, by_id = module.API.request, version >= (10 if producer is None else 6)
        topic_of, partition_of = (
            getattr(module, make.__name__ + kind) for kind in ("Topic", "Partition")
        )
        topics: dict[str, list[Any]] = {}
        for topic, index, offset in offsets:
            some = topics.setdefault(topic, [])
            some.append(
                partition_of(
                    partition_index=index, committed_offset=offset, committed_metadata=metadata
                )
            )
        named = [
            topic_of(topic_id=self.twins.ids[topic], partitions=some)
            if by_id
            else topic_of(name=topic, partitions=some)
            for topic, some in topics.items()
        ]
        if producer is None:
            sender = {"generation_id_or_member_epoch": self.generation}
        else:
            sender = _sender(producer) | {"generation_id": self.generation}
        request = make(group_id=GROUP, member_id=self.member_id, topics=named, **sender)
        answer = self.twins.ask(module, request, version)
        self.twins.ask(
            offset_fetch, offset_fetch.OffsetFetchRequest(group_id=GROUP, topics=None), 7
        )
        self.twins.state()
        return [
            ErrorCode(each.error_code).name for topic in answer.topics for each in topic.partitions
        ]

    def add(self, producer: Producer) -> str:
        """Add the group's partition to a transaction of the older protocol."""
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(group_id=GROUP, **_sender(producer))
        return ErrorCode(self.twins.ask(add_offsets_to_txn, request, 3).error_code).name

    def leave(self) -> None:
        identity = leave_group.MemberIdentity(member_id=self.member_id)
        request = leave_group.LeaveGroupRequest(group_id=GROUP, members=[identity])
        self.twins.ask(leave_group, request, 3)


def _sender(producer: Producer) -> dict[str, Any]:
    return {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }


@contextmanager
def running(**keys: str) -> Iterator[Rig]:
    with twins(**keys) as pair:
        yield Rig(pair)


@pytest.mark.parametrize("version", [2, 4, 8, 9, 10])
def test_further_offsets_of_the_same_partitions_are_committed_again(version: int) -> None:
    with running() as rig:
        for offset in range(4):
            some = ("t", 0, offset), ("t", 1, 2 * offset), ("u", 0, -(offset + 1))
            assert rig.commit(*some, version=version) == ["NONE"] * 3
        assert rig.served == 3


def test_member_commits_and_beats_again_in_its_generation() -> None:
    with running() as rig:
        rig.join()
        for offset in range(3):
            assert rig.beat() == "NONE"
            assert rig.commit(("t", 0, offset)) == ["NONE"]
        assert rig.served == 4
        rig.generation += 1
        assert rig.beat() == "ILLEGAL_GENERATION"
        assert rig.commit(("t", 0, 9)) == ["ILLEGAL_GENERATION"]


@finds(
    GroupCoordinator._write_at_once,
    "except KafkaError: return None",
    "except KafkaError: return True",
)
def test_member_that_has_left_is_refused() -> None:
    with running() as rig:
        rig.join()
        for offset in range(2):
            rig.beat()
            rig.commit(("t", 0, offset))
        rig.leave()
        assert rig.beat() == "UNKNOWN_MEMBER_ID"
        assert rig.commit(("t", 0, 5)) == ["UNKNOWN_MEMBER_ID"]


def test_heartbeats_extend_the_session() -> None:
    with running() as rig:
        rig.join()
        for _ in range(5):
            assert rig.beat() == "NONE"
            rig.twins.wait(7)
        assert rig.served == 4
        rig.twins.wait(7)
        assert rig.beat() == "UNKNOWN_MEMBER_ID"


@finds(GroupCoordinator.heartbeat_at_once, " and not answer.error_code")
def test_rebalance_is_told() -> None:
    with running() as rig:
        rig.join()
        for _ in range(2):
            rig.beat()

        async def join(side: Any) -> None:
            side.other = await Connection.open("sim", 9092)
            request = rig.joining("", 3_000)
            joining = side.other.request(join_group.API, request, version=3, timeout=60)
            side.joining = asyncio.ensure_future(joining)
            await asyncio.sleep(0.5)

        async def joined(side: Any) -> int:
            answer = await side.joining
            await side.other.close()
            return int(answer.error_code)

        rig.twins.both(join)
        assert rig.beat() == "REBALANCE_IN_PROGRESS"
        assert rig.beat() == "REBALANCE_IN_PROGRESS"
        assert rig.twins.both(joined) == 0


@finds(known_offsets.repeated, "not answers or ")
@finds(known_offsets.repeated, "any(each.error_code for each in answers)", "False")
def test_refused_offsets_are_not_remembered() -> None:
    with running() as rig:
        for _ in range(2):
            assert rig.commit(("t", 0, 1), ("t", 7, 1)) == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
            assert rig.commit(("t", 0, 1), metadata="m" * 5000) == ["OFFSET_METADATA_TOO_LARGE"]
            assert rig.commit() == []
        more = create_partitions.CreatePartitionsTopic(name="t", count=8, assignments=None)
        request = create_partitions.CreatePartitionsRequest(
            topics=[more], timeout_ms=5000, validate_only=False
        )
        rig.twins.ask(create_partitions, request)
        assert not rig.served
        for _ in range(2):
            assert rig.commit(("t", 0, 1), ("t", 7, 1)) == ["NONE"] * 2
        assert rig.served == 1


@finds(known_offsets.next_offsets, "found is None or ")
@finds(known_offsets.next_offsets, " or found.topic_id != topic_id")
def test_topic_that_was_deleted_or_made_anew_is_another_one() -> None:
    with running() as rig:
        for offset in range(2):
            for version in (8, LATEST):
                rig.commit(("u", 0, offset), version=version)
        assert rig.served == 2
        rig.twins.delete("u")
        rig.twins.wait(5)
        assert rig.commit(("u", 0, 2)) == ["UNKNOWN_TOPIC_OR_PARTITION"]
        assert rig.commit(("u", 0, 2), version=LATEST) == ["UNKNOWN_TOPIC_ID"]
        old = rig.twins.ids["u"]
        rig.twins.create("u", 1)
        assert rig.commit(("u", 0, 3)) == ["NONE"]
        assert rig.served == 2
        assert rig.commit(("u", 0, 4)) == ["NONE"]
        assert rig.served == 3
        rig.twins.ids["u"] = old
        assert rig.commit(("u", 0, 5), version=LATEST) == ["UNKNOWN_TOPIC_ID"]


@finds(beating.again, "None if response.error_code else ")
def test_refused_heartbeat_is_not_remembered() -> None:
    asked: Any = heartbeat.HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m")
    nothing: Any = None
    answer = heartbeat.HeartbeatResponse()
    assert beating.again(nothing, asked, nothing, answer) is not None
    answer.error_code = ErrorCode.REBALANCE_IN_PROGRESS
    assert beating.again(nothing, asked, nothing, answer) is None


@pytest.mark.parametrize("version", [0, 3, 4, 5, 6])
def test_offsets_are_committed_again_in_each_transaction(version: int) -> None:
    with running() as rig:
        producer = Producer(rig.twins, version=12 if version >= 5 else 9)
        for offset in range(4):
            if version < 5:
                assert rig.add(producer) == "NONE"
            assert (
                rig.commit(("t", 0, offset), ("t", 1, -1), producer=producer, version=version)
                == ["NONE"] * 2
            )
            assert (
                rig.commit(("t", 0, offset), ("t", 1, 7), producer=producer, version=version)
                == ["NONE"] * 2
            )
            assert producer.end(commit=offset % 2 == 0) == 0
            assert rig.commit(("t", 0, offset)) == ["NONE"]
        assert rig.served == 7 + 3


@finds(in_transaction._commit_again, "except KafkaError:", "except ZeroDivisionError:", 3)
@pytest.mark.parametrize("version", [3, 5])
def test_offsets_of_an_earlier_producer_are_refused(version: int) -> None:
    with running() as rig:
        old = Producer(rig.twins, version=12 if version >= 5 else 9)
        for _ in range(2):
            rig.add(old)
            assert rig.commit(("t", 0, 1), producer=old, version=version) == ["NONE"]
        Producer(rig.twins)
        assert rig.commit(("t", 0, 2), producer=old, version=version) == ["INVALID_PRODUCER_EPOCH"]


@finds(in_transaction._commit_again, "claim.epoch_per_transaction or ", "", "false")
@finds(in_transaction._commit_again, " or verifier.verifies", "", "true")
@finds(in_transaction._commit_again, "or verifier.verifies", "or True", "false")
@finds(in_transaction._commit_again, "transactions.verify_at_once((asked,))", "True", "true")
@finds(in_transaction._commit_again, "verifier.add_again(added, producer) if", "True if", "false")
@pytest.mark.parametrize("verifies", ["true", "false"])
def test_transaction_of_offsets_is_verified_as_configured(verifies: str) -> None:
    with running(transaction_partition_verification_enable=verifies) as rig:
        older, newer = Producer(rig.twins, "x"), Producer(rig.twins, "y", version=12)
        rig.add(older)
        for offset in range(3):
            assert rig.commit(("t", 0, offset), producer=older, version=4) == ["NONE"]
            assert rig.commit(("t", 0, offset), producer=newer, version=5) == ["NONE"]
            assert newer.end() == 0
        assert older.end() == 0
        expected = "TRANSACTION_ABORTABLE" if verifies == "true" else "NONE"
        assert rig.commit(("t", 0, 9), producer=older, version=4) == [expected]
        assert rig.served == 4 + (verifies != "true")


@finds(in_transaction._commit_again, "index != place.partition", "False", 5)
@pytest.mark.parametrize("version", [3, 5])
def test_group_that_moves_to_another_partition_joins_the_transaction_with_that(
    version: int,
) -> None:
    with running() as rig:
        producer = Producer(rig.twins, version=12 if version >= 5 else 9)
        rig.add(producer)
        for offset in range(2):
            rig.commit(("t", 0, offset), producer=producer, version=version)
        assert producer.end() == 0
        for side in rig.twins.sides:
            side.broker._coordination.groups.coordinator._partitions = lambda: 1
        rig.add(producer)
        assert rig.commit(("t", 0, 9), producer=producer, version=version) == ["NONE"]
        assert rig.served == 1


@finds(in_transaction._commit_again, "(commit, index) else", "(commit, index) or True else")
def test_member_that_has_left_is_refused_in_a_transaction() -> None:
    with running() as rig:
        producer = Producer(rig.twins)
        rig.join()
        for _ in range(2):
            rig.add(producer)
            assert rig.commit(("t", 0, 1), producer=producer, version=3) == ["NONE"]
        rig.leave()
        assert rig.commit(("t", 0, 2), producer=producer, version=3) == ["UNKNOWN_MEMBER_ID"]


def test_producer_that_is_unknown_is_refused() -> None:
    with running() as rig:
        producer = Producer(rig.twins)
        rig.add(producer)
        for _ in range(2):
            assert rig.commit(("t", 0, 1), producer=producer, version=3) == ["NONE"]
        producer.epoch += 1
        assert rig.commit(("t", 0, 2), producer=producer, version=3) == ["INVALID_PRODUCER_EPOCH"]


test_missing_check_is_found = hunt(globals())
