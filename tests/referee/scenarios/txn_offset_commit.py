"""TxnOffsetCommit, and the answers of other APIs about offsets in open transactions."""

from dataclasses import dataclass
from typing import Any

from barnabas.protocol.java_hash import partition_for
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest
from barnabas.protocol.messages.txn_offset_commit import (
    API,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.records.batch import iter_headers
from barnabas.protocol.records.record import iter_records
from tests.referee import given
from tests.referee.given import committed
from tests.referee.scenario import LEVELS, Peer, Scenarios
from tests.referee.transactions import has_ended

NAMES_UNTIL = 5
IDS_SINCE = 6
"""Versions of TxnOffsetCommit that name topics, and that have their ids (KIP-1319)."""

scenario = Scenarios(API, LEVELS, also=frozenset({NAMES_UNTIL}))

MEMBERS = 3
OLDER = 4
"""The last versions of TxnOffsetCommit and EndTxn for clusters with an older transaction.version. A
newer version begins a transaction there that Kafka refuses (35) and that stays busy (51)."""
UNSTABLE = 88


@dataclass
class Producer:
    """A producer that commits offsets in transactions."""

    s: Peer
    transactional_id: str
    group: str
    producer_id: int = -1
    epoch: int = -1

    def init(self) -> "Producer":
        """Take the next epoch of the transactional id."""
        finding = FindCoordinatorRequest(coordinator_keys=[self.transactional_id], key_type=1)
        self.s.do(finding, until=lambda r: r.coordinators[0].error_code == 0)
        answer = self.s.do(
            InitProducerIdRequest(
                transactional_id=self.transactional_id, transaction_timeout_ms=60_000
            ),
            until=lambda r: r.error_code == 0,
        )
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return self

    def joins(self) -> "Producer":
        """Add the group's partition to the transaction."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=self.group,
        )
        self.s.do(request, until=lambda r: r.error_code == 0)
        return self

    def commit(
        self,
        *wanted: tuple[given.Topic, int, int],
        metadata: str | None = "note",
        **options: Any,
    ) -> TxnOffsetCommitRequest:
        """Return the request that commits offsets, each for a topic and partition."""
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for to, partition, offset in wanted:
            topic = TxnOffsetCommitRequestTopic(name=to.name, topic_id=to.id, partitions=[])
            topics.setdefault(to.name, topic).partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_metadata=metadata,
                )
            )
        asked = {
            "transactional_id": self.transactional_id,
            "group_id": self.group,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }
        return TxnOffsetCommitRequest(**(asked | options), topics=list(topics.values()))

    def ending(self, *, committed: bool = True) -> EndTxnRequest:
        """Return the request that ends the transaction."""
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )

    def end(self, *, committed: bool = True) -> None:
        """End the transaction; return when its markers are written."""
        request = self.ending(committed=committed)
        self.s.do(request, until=lambda r: r.error_code == 0, version=OLDER)
        asked = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        self.s.do(asked, until=has_ended)

    def stable(self, *wanted: tuple[given.Topic, list[int]]) -> OffsetFetchRequest:
        return given.offset_fetch(10, self.group, *wanted, require_stable=True)


def producer(s: Peer, suffix: str = "x") -> Producer:
    return Producer(s, s.name(suffix), s.name("g")).init()


def is_forgotten(answer: Any) -> bool:
    partitions = [each for topic in answer.groups[0].topics for each in topic.partitions]
    return all(each.committed_offset == -1 for each in partitions)


def is_stable(answer: Any) -> bool:
    partitions = [each for topic in answer.groups[0].topics for each in topic.partitions]
    return all(each.error_code != UNSTABLE for each in partitions)


@scenario
def committed_with_the_transaction(s: Peer) -> None:
    to, x = given.topic(s), producer(s).joins()
    committed(s, x.group, to, 1)
    s.ask(x.commit((to, 0, 5)))
    s.ask(x.stable((to, [0])))
    s.ask(given.offset_fetch(10, x.group, (to, [0])))
    x.end()
    s.ask(x.stable((to, [0])), until=is_stable)


@scenario
def aborted_with_the_transaction(s: Peer) -> None:
    to, x = given.topic(s), producer(s).joins()
    committed(s, x.group, to, 1)
    s.ask(x.commit((to, 0, 5)))
    x.end(committed=False)
    s.ask(x.stable((to, [0])), until=is_stable)


@scenario
def the_first_offset_of_a_group(s: Peer) -> None:
    to, x = given.topic(s), producer(s).joins()
    s.ask(x.commit((to, 0, 5)))
    s.ask(x.stable((to, [0])))
    s.ask(x.stable(None))  # type: ignore[arg-type]
    s.ask(given.offset_fetch(10, x.group, None))
    x.end()
    s.ask(x.stable((to, [0])), until=is_stable)


@scenario
def all_offsets_of_a_group_with_a_pending_one(s: Peer) -> None:
    to, x = given.topic(s, partitions=2), producer(s).joins()
    committed(s, x.group, to, 1)
    committed(s, x.group, to, 2, partition=1)
    s.ask(x.commit((to, 0, 5)))
    s.ask(x.stable(None))  # type: ignore[arg-type]
    s.ask(given.offset_fetch(10, x.group, None))


@scenario
def committed_twice_in_a_transaction(s: Peer) -> None:
    to, x = given.topic(s), producer(s).joins()
    s.ask(x.commit((to, 0, 5)))
    s.ask(x.commit((to, 0, 3)))
    x.end()
    s.ask(x.stable((to, [0])), until=is_stable)


@scenario
def a_plain_commit_comes_after(s: Peer) -> None:
    to, x = given.topic(s), producer(s).joins()
    s.ask(x.commit((to, 0, 5)))
    committed(s, x.group, to, 2)
    s.ask(x.stable((to, [0])))
    x.end()
    s.ask(x.stable((to, [0])), until=is_stable)


@scenario
def two_transactions_end_in_the_other_order(s: Peer) -> None:
    to, x, y = given.topic(s), producer(s).joins(), producer(s, "y").joins()
    s.ask(x.commit((to, 0, 5)))
    s.ask(y.commit((to, 0, 6)))
    y.end()
    s.ask(x.stable((to, [0])))
    x.end()
    s.ask(x.stable((to, [0])), until=is_stable)


@scenario(until=OLDER)
def a_partition_that_is_not_in_the_transaction(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    s.ask(x.commit((to, 0, 5)))
    s.ask(x.stable((to, [0])))


@scenario(until=OLDER)
def after_the_transaction_has_ended(s: Peer) -> None:
    to, x = given.topic(s), producer(s).joins()
    s.ask(x.commit((to, 0, 5)))
    x.end()
    s.ask(x.stable((to, [0])), until=is_stable)
    s.ask(x.commit((to, 0, 6)))


@scenario
def an_older_epoch(s: Peer) -> None:
    to, x = given.topic(s), producer(s).joins()
    stale = x.epoch
    x.init()
    s.ask(x.commit((to, 0, 5), producer_epoch=stale))
    s.ask(x.commit((to, 0, 5), producer_epoch=x.epoch + 1))


@scenario
def an_older_epoch_of_an_open_transaction(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.init().joins()
    s.ask(x.commit((to, 0, 5)))
    s.ask(x.commit((to, 0, 6), producer_epoch=x.epoch - 1))
    x.end()
    s.ask(x.stable((to, [0])), until=is_stable)


@scenario
def another_producer_id(s: Peer) -> None:
    to, x = given.topic(s), producer(s).joins()
    s.ask(x.commit((to, 0, 5), producer_id=x.producer_id + 1_000_000))


@scenario
def an_unknown_transactional_id(s: Peer) -> None:
    to, x = given.topic(s), producer(s).joins()
    s.ask(x.commit((to, 0, 5), transactional_id=s.name("unknown")))


@scenario
def a_transactional_id_without_a_name(s: Peer) -> None:
    to, x = given.topic(s), producer(s).joins()
    s.ask(x.commit((to, 0, 5), transactional_id=""))


@scenario
def a_producer_below_zero(s: Peer) -> None:
    to, x = given.topic(s), producer(s).joins()
    s.ask(x.commit((to, 0, 5), producer_id=-1, producer_epoch=-1))


@scenario
def unknown_topics_and_partitions(s: Peer) -> None:
    to, x = given.topic(s), producer(s).joins()
    ghost = given.Topic(s.name("ghost"), b"0123456789abcdef")
    s.ask(x.commit((to, 0, 5), (to, 7, 6)))
    s.ask(x.commit((ghost, 0, 5)))
    s.ask(x.commit())


@scenario
def metadata_that_is_too_long(s: Peer) -> None:
    to, x = given.topic(s), producer(s).joins()
    s.ask(x.commit((to, 0, 5), metadata="x" * 4097))
    s.ask(x.stable((to, [0])))
    s.ask(x.commit((to, 0, 5), metadata="x" * 4096))
    s.ask(x.commit((to, 0, 6), metadata=None))
    x.end()
    s.ask(x.stable((to, [0])), until=is_stable)


@scenario
def an_offset_below_zero(s: Peer) -> None:
    to, x = given.topic(s), producer(s).joins()
    s.ask(x.commit((to, 0, -1)))
    x.end()
    s.ask(x.stable((to, [0])), until=is_stable)


@scenario
def a_group_without_a_name(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    s.ask(x.commit((to, 0, 5), group_id=""))


@scenario
def a_group_with_members_and_another_client(s: Peer) -> None:
    to, me = given.topic(s), given.member(s)
    x = producer(s).joins()
    assert x.group == me.group
    s.ask(x.commit((to, 0, 5)))
    x.end()
    s.ask(x.stable((to, [0])), until=is_stable)


@scenario(since=MEMBERS)
def as_a_member(s: Peer) -> None:
    to, me = given.topic(s), given.member(s)
    x = producer(s).joins()
    s.ask(x.commit((to, 0, 5), member_id=me.id, generation_id=me.generation))
    x.end()
    s.ask(x.stable((to, [0])), until=is_stable)


@scenario(since=MEMBERS)
def as_a_member_of_another_generation(s: Peer) -> None:
    to, me = given.topic(s), given.member(s)
    x = producer(s).joins()
    s.ask(x.commit((to, 0, 5), member_id=me.id, generation_id=me.generation + 1))
    s.ask(x.commit((to, 0, 5), member_id=me.id, generation_id=me.generation - 1))
    s.ask(x.commit((to, 0, 5), member_id=me.id))
    s.ask(x.stable((to, [0])))


@scenario(since=MEMBERS)
def as_an_unknown_member(s: Peer) -> None:
    to, me = given.topic(s), given.member(s)
    x = producer(s).joins()
    s.ask(x.commit((to, 0, 5), member_id="unknown", generation_id=me.generation))
    s.ask(x.commit((to, 0, 5), generation_id=me.generation))
    s.ask(x.commit((to, 0, 5), member_id="unknown"))
    s.ask(x.commit((to, 0, 5), group_instance_id="unknown"))


@scenario(since=MEMBERS)
def as_a_static_member(s: Peer) -> None:
    to, me = given.topic(s), given.member(s, group_instance_id="i")
    x = producer(s).joins()
    generation = me.generation
    s.ask(x.commit((to, 0, 5), member_id="other", generation_id=generation, group_instance_id="i"))
    s.ask(x.commit((to, 0, 5), member_id=me.id, generation_id=generation, group_instance_id="i"))
    s.ask(x.commit((to, 0, 5), member_id=me.id, generation_id=generation, group_instance_id="j"))


@scenario(since=MEMBERS)
def a_generation_of_an_unknown_group(s: Peer) -> None:
    to, x = given.topic(s), producer(s).joins()
    s.ask(x.commit((to, 0, 5), member_id="m", generation_id=3))
    s.ask(x.commit((to, 0, 5), member_id="m"))
    s.ask(x.stable((to, [0])))


@scenario(since=MEMBERS)
def a_member_of_a_group_that_is_empty(s: Peer) -> None:
    to, me = given.topic(s), given.member(s)
    x = producer(s).joins()
    s.ask(LeaveGroupRequest(group_id=me.group, members=[MemberIdentity(member_id=me.id)]))
    s.ask(x.commit((to, 0, 5), member_id=me.id, generation_id=me.generation))
    s.ask(x.commit((to, 0, 5), member_id=me.id))


@scenario
def the_group_is_deleted(s: Peer) -> None:
    to, x = given.topic(s), producer(s).joins()
    committed(s, x.group, to, 1)
    s.ask(x.commit((to, 0, 5)))
    s.ask(DeleteGroupsRequest(groups_names=[x.group]))
    s.ask(x.stable((to, [0])))
    x.end()
    s.ask(x.stable((to, [0])), until=is_stable)


@scenario
def the_offset_is_deleted(s: Peer) -> None:
    to, x = given.topic(s, partitions=2), producer(s).joins()
    s.ask(x.commit((to, 0, 5), (to, 1, 6)))
    partition = OffsetDeleteRequestPartition(partition_index=0)
    topic = OffsetDeleteRequestTopic(name=to.name, partitions=[partition])
    s.ask(OffsetDeleteRequest(group_id=x.group, topics=[topic]))
    s.ask(x.stable((to, [0, 1])))
    x.end()
    s.ask(x.stable((to, [0, 1])), until=is_stable)


@scenario
def the_topic_is_deleted(s: Peer) -> None:
    to, kept, x = given.topic(s), given.topic(s, "kept"), producer(s).joins()
    s.ask(x.commit((to, 0, 5), (kept, 0, 6)))
    s.do(
        DeleteTopicsRequest(topics=[DeleteTopicState(name=to.name)], timeout_ms=10_000),
        until=lambda r: r.responses[0].error_code == 0,
    )
    gone = lambda r: len(r.groups[0].topics) == 1  # noqa: E731
    x.end()
    s.ask(given.offset_fetch(10, x.group, None), until=gone)
    s.ask(x.stable((kept, [0])), until=is_stable)


@scenario
def a_group_of_pending_offsets_alone_is_listed(s: Peer) -> None:
    to, x = given.topic(s), producer(s).joins()
    s.ask(x.commit((to, 0, 5)))
    mine = lambda r: [each for each in r.groups if each.group_id == x.group]  # noqa: E731
    s.ask(ListGroupsRequest(), pick=mine)
    x.end(committed=False)
    s.ask(ListGroupsRequest(), pick=mine)


@scenario(since=IDS_SINCE)
def topics_by_ids_that_exist_and_not(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    unknown, none = given.Topic("", b"0123456789abcdef"), given.Topic("none", bytes(16))
    s.ask(x.commit((unknown, 0, 5), (to, 0, 6), (to, 1, 7), (none, 0, 8)))
    s.ask(given.offset_fetch(10, x.group, (to, [0])))
    s.ask(x.stable((to, [0])))
    x.end()
    s.ask(x.stable((to, [0])), until=is_stable)


@scenario(since=IDS_SINCE)
def no_topic_has_the_id_and_the_transaction_stays_empty(s: Peer) -> None:
    x = producer(s)
    s.ask(x.commit((given.Topic("", b"0123456789abcdef"), 0, 5)))
    s.ask(x.ending())


@scenario(since=NAMES_UNTIL)
def the_topic_was_deleted_and_created_again(s: Peer) -> None:
    old, kept, x = given.topic(s), given.topic(s, "kept"), producer(s)
    given.delete(s, old)
    new = given.topic(s)
    assert new.id != old.id
    s.ask(x.commit((old, 0, 5), (kept, 0, 6)))
    s.ask(x.commit((new, 0, 7)))
    x.end()
    s.ask(x.stable((new, [0]), (kept, [0])), until=is_stable)
    s.ask(x.stable((old, [0])))


@scenario(since=NAMES_UNTIL)
def the_topic_is_created_again_before_the_commit(s: Peer) -> None:
    old, kept, x = given.topic(s), given.topic(s, "kept"), producer(s)
    s.ask(x.commit((old, 0, 5), (kept, 0, 6)))
    given.delete(s, old)
    new = given.topic(s)
    x.end()
    s.ask(x.stable((kept, [0])), until=is_stable)
    s.ask(x.stable((new, [0])), until=is_stable)
    s.ask(x.stable((old, [0])))


@scenario(since=NAMES_UNTIL)
def the_topic_is_created_again_after_the_commit(s: Peer) -> None:
    old, x = given.topic(s), producer(s)
    s.ask(x.commit((old, 0, 5)))
    x.end()
    s.ask(x.stable((old, [0])), until=is_stable)
    given.delete(s, old)
    new = given.topic(s)
    s.ask(x.stable((new, [0])), until=is_forgotten)
    s.ask(given.offset_fetch(9, x.group, (new, [0])), version=9)


@scenario(since=NAMES_UNTIL)
def by_another_producer_of_the_topics_id(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    s.ask(x.commit((to, 0, 5), producer_epoch=x.epoch - 1))
    s.ask(x.commit((to, 0, 5), producer_epoch=x.epoch + 1))
    s.ask(x.commit((to, 0, 5), producer_id=x.producer_id + 1_000_000))
    s.ask(x.commit((to, 0, 5), transactional_id=s.name("unknown")))


@scenario(since=NAMES_UNTIL)
def a_member_that_left_and_a_generation_below_zero(s: Peer) -> None:
    to, me = given.topic(s), given.member(s)
    x = producer(s)
    s.ask(x.commit((to, 0, 5), member_id=me.id, generation_id=-1))
    s.ask(x.commit((to, 0, 5), member_id="", generation_id=-2))
    s.ask(LeaveGroupRequest(group_id=me.group, members=[MemberIdentity(member_id=me.id)]))
    s.ask(x.commit((to, 0, 5), member_id=me.id, generation_id=me.generation))
    s.ask(x.commit((to, 0, 5), member_id=me.id, generation_id=-1))
    s.ask(x.commit((to, 0, 5), generation_id=0))


@scenario(since=NAMES_UNTIL)
def a_group_that_nobody_knows(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    s.ask(x.commit((to, 0, 5), member_id="m", generation_id=0))
    s.ask(x.commit((to, 0, 5), generation_id=0))
    s.ask(x.commit((to, 0, 5), group_instance_id="i", generation_id=1))
    s.ask(x.commit((to, 0, 5), group_id="", generation_id=-1))
    s.ask(x.commit((to, 0, 5), member_id="m", generation_id=-1))


@scenario(since=NAMES_UNTIL)
def a_group_of_offsets_alone(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    committed(s, x.group, to, 1)
    s.ask(x.commit((to, 0, 5), member_id="m", generation_id=3))
    s.ask(x.commit((to, 0, 5), generation_id=0))
    s.ask(x.commit((to, 0, 5), member_id="m", generation_id=-1))


@scenario(since=NAMES_UNTIL)
def the_same_topic_twice(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    request = x.commit((to, 0, 5))
    request.topics += x.commit((to, 0, 6)).topics
    s.ask(request)
    x.end()
    s.ask(x.stable((to, [0])), until=is_stable)


@scenario(since=NAMES_UNTIL)
def the_record_has_the_topics_id(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    s.ask(x.commit((to, 0, 5)))
    name = "__consumer_offsets"
    (internal,) = s.do(MetadataRequest(topics=[MetadataRequestTopic(name=name)])).topics
    partition = partition_for(x.group, len(internal.partitions))

    def written(answer: Any) -> list[dict[str, Any]]:
        """Return the version of each value of the producer, and whether it has the id."""
        data = bytes(answer.responses[0].partitions[0].records or b"")
        values = [
            record.value
            for at, header in iter_headers(data)
            if header.producer_id == x.producer_id and not header.is_control
            for record in iter_records(data, at, header)
        ]
        return [
            {"version": int.from_bytes(value[:2]), "has_id": to.id in value}
            for value in values
            if value is not None
        ]

    read = given.fetch(given.Topic(name, internal.topic_id), partition=partition)
    s.ask(read, until=lambda answer: bool(written(answer)), pick=written)
    x.end()
