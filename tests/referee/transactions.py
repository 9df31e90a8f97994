"""The setting of transactional scenarios: a producer that speaks the protocol under test."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.schema import Message, fields_of
from tests.referee import given
from tests.referee.given import Topic
from tests.referee.raw import APIS
from tests.referee.scenario import CLOSED, WORN, Peer

UNCOMMITTED, COMMITTED = 0, 1
"""Isolation levels."""

LATER_COORDINATOR = 1_000_000
"""An epoch of a coordinator that no election reaches here."""

CLIENTS_UNTIL = 3
"""AddPartitionsToTxn of later versions is for brokers."""

Until = Callable[[Any], bool]


@dataclass
class Producer:
    """A producer with a transactional id; what `s.ask` sends of it is compared, `do` is not."""

    s: Peer
    transactional_id: str
    id: int = -1
    epoch: int = -1
    sequences: defaultdict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))

    # -- requests --------------------------------------------------------------------------------

    def who(self, **options: Any) -> dict[str, Any]:
        mine = {
            "transactional_id": self.transactional_id,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
        }
        return mine | options

    def init(self, timeout_ms: int = 60_000, *, resume: bool = False) -> InitProducerIdRequest:
        """With `resume` it tells its id and epoch (KIP-360)."""
        mine = self.who() if resume else {"transactional_id": self.transactional_id}
        return InitProducerIdRequest(**mine, transaction_timeout_ms=timeout_ms)

    def add(self, to: Topic, *partitions: int, **options: Any) -> AddPartitionsToTxnRequest:
        """In the shape for clients."""
        mine = {f"v3_and_below_{key}": value for key, value in self.who(**options).items()}
        topic = AddPartitionsToTxnTopic(name=to.name, partitions=list(partitions or (0,)))
        return AddPartitionsToTxnRequest(**mine, v3_and_below_topics=[topic])

    def add_group(self, group: str, **options: Any) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(**self.who(**options), group_id=group)

    def batch(self, to: Topic, *values: bytes, partition: int = 0, **options: Any) -> bytes:
        """The next batch for a partition; its sequence is used up where the caller gives none."""
        place = to.name, partition
        mine = {
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "base_sequence": self.sequences[place],
            "transactional": True,
        }
        if "base_sequence" not in options:
            self.sequences[place] += len(values)
        return given.batch(*values, **(mine | options))

    def produce(self, to: Topic, *values: bytes, **options: Any) -> ProduceRequest:
        """Options are those of `batch`."""
        return given.produce(
            to,
            self.batch(to, *values, **options),
            partition=options.get("partition", 0),
            transactional_id=self.transactional_id,
        )

    def commit(self, group: str, to: Topic, offset: int, **options: Any) -> TxnOffsetCommitRequest:
        """The offset of the topic's partition 0."""
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        topic = TxnOffsetCommitRequestTopic(name=to.name, partitions=[partition])
        return TxnOffsetCommitRequest(**self.who(**options), group_id=group, topics=[topic])

    def end(self, *, committed: bool = True, **options: Any) -> EndTxnRequest:
        return EndTxnRequest(**self.who(**options), committed=committed)

    def describe(self) -> DescribeTransactionsRequest:
        return DescribeTransactionsRequest(transactional_ids=[self.transactional_id])

    # -- what is only the setting ----------------------------------------------------------------

    def do(self, request: Any, until: Until | None = None) -> Any:
        """Sends what must succeed, as the client under test would."""
        self.s.sent.append(APIS[type(request)].key)
        return self.s.do(
            request, until=until or is_well, version=self.s.last_version(request), on="main"
        )

    def start(self, timeout_ms: int = 60_000) -> "Producer":
        """The next epoch of the transactional id."""
        finding = FindCoordinatorRequest(coordinator_keys=[self.transactional_id], key_type=1)
        self.s.do(finding, until=lambda r: r.coordinators[0].error_code == 0)
        self.adopt(self.do(self.init(timeout_ms)))
        return self

    def adopt(self, answer: Any) -> Any:
        """Go on with the producer id and epoch of an answer, if it brings any."""
        if answer != CLOSED and not answer.error_code and answer.producer_id >= 0:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer

    def join(self, to: Topic, *partitions: int) -> "Producer":
        """Partitions are in the transaction, where clients of the protocol say so."""
        if not self.s.newer:
            self.do(self.add(to, *partitions))
        return self

    def write(self, to: Topic, *values: bytes, partition: int = 0) -> "Producer":
        """Values are in the transaction."""
        self.join(to, partition)
        request = self.produce(to, *(values or (b"x",)), partition=partition)
        self.do(request)
        return self

    def commit_offset(self, group: str, to: Topic, offset: int) -> "Producer":
        """A group's offset is in the transaction."""
        if not self.s.newer:
            self.do(self.add_group(group))
        self.do(self.commit(group, to, offset))
        return self

    def finish(self, *, committed: bool = True) -> "Producer":
        """The transaction is over, and its markers are written."""
        self.adopt(self.do(self.end(committed=committed)))
        self.settle()
        return self

    def settle(self) -> None:
        """Nothing is under way."""
        self.s.do(self.describe(), until=is_settled)

    def freeze(self, to: Topic, *, committed: bool = True) -> "Producer":
        """The end of the transaction is decided, and stays so: a partition refuses its marker."""
        self.do(markers(self, to, committed=False, coordinator_epoch=LATER_COORDINATOR))
        self.adopt(self.do(self.end(committed=committed)))
        return self

    # -- what is compared ------------------------------------------------------------------------

    def ask(self, request: Any, **options: Any) -> Any:
        """Like `s.ask`, with the versions of the client under test, and its answer is adopted."""
        tested = APIS[type(request)] is self.s.api
        version = self.s.version if tested else self.s.last_version(request)
        answer = self.s.ask(request, version=version, **options)
        if isinstance(request, EndTxnRequest | InitProducerIdRequest):
            self.adopt(answer)
        return answer

    def ends(self, *, committed: bool = True) -> None:
        """Ends the transaction, and waits for its markers."""
        self.ask(self.end(committed=committed))
        self.s.ask(self.describe(), until=is_settled)

    def aftermath(self, *topics: Topic) -> None:
        """What has become of the transaction, and of what was written."""
        self.s.ask(self.describe(), until=is_settled)
        for to in topics:
            seen(self.s, to)


def is_well(answer: Any) -> bool:
    """Whether an answer holds no error at any depth."""
    if isinstance(answer, list):
        return all(map(is_well, answer))
    if not isinstance(answer, Message):
        return True
    fields = {spec.name: getattr(answer, spec.name) for spec in fields_of(type(answer))}
    return all(
        not value if name.endswith("error_code") else is_well(value)
        for name, value in fields.items()
    )


def is_settled(answer: Any) -> bool:
    """Whether the one transaction that was described is not on its way to an end."""
    return not answer.transaction_states[0].transaction_state.startswith("Prepare")


def is_free(answer: Any) -> bool:
    """Whether nothing of before kept the answer from being the last word."""
    return answer == CLOSED or answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS


def producer(s: Peer, suffix: str = "x", timeout_ms: int = 60_000) -> Producer:
    """A producer that may begin."""
    return Producer(s, s.name(suffix)).start(timeout_ms)


def worn(s: Peer) -> Producer:
    """The same, of a scenario with `worn`: at epoch 32,765."""
    return producer(s, WORN)


def markers(
    of: Producer,
    to: Topic,
    *partitions: int,
    committed: bool = True,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
    epoch: int | None = None,
) -> WriteTxnMarkersRequest:
    """A marker as a coordinator or an operator writes it."""
    topic = WritableTxnMarkerTopic(name=to.name, partition_indexes=list(partitions or (0,)))
    marker = WritableTxnMarker(
        producer_id=of.id,
        producer_epoch=of.epoch if epoch is None else epoch,
        transaction_result=committed,
        topics=[topic],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    return WriteTxnMarkersRequest(markers=[marker])


def seen(s: Peer, to: Topic, *partitions: int) -> None:
    """What readers of both isolation levels find in partitions, and who wrote there."""
    for each in partitions or (0,):
        for isolation in (UNCOMMITTED, COMMITTED):
            s.ask(given.fetch(to, partition=each, isolation_level=isolation))
        topic = TopicRequest(name=to.name, partition_indexes=[each])
        s.ask(DescribeProducersRequest(topics=[topic]))
