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
from tests.referee.scenario import CLOSED, WORN, Peer
from tests.support.raw import APIS

UNCOMMITTED, COMMITTED = 0, 1
"""Isolation levels."""

LATER_COORDINATOR = 1_000_000
"""A coordinator epoch that is higher than any election in the tests yields."""

CLIENTS_UNTIL = 3
"""The last version of AddPartitionsToTxn for clients; later ones are for brokers."""

Until = Callable[[Any], bool]


@dataclass
class Producer:
    """A producer with a transactional id. Requests of `ask` are compared, those of `do` are not."""

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
        """Return the request; with `resume` it has the producer's id and epoch (KIP-360)."""
        mine = self.who() if resume else {"transactional_id": self.transactional_id}
        return InitProducerIdRequest(**mine, transaction_timeout_ms=timeout_ms)

    def add(self, to: Topic, *partitions: int, **options: Any) -> AddPartitionsToTxnRequest:
        """Return the request in its shape for clients."""
        mine = {f"v3_and_below_{key}": value for key, value in self.who(**options).items()}
        topic = AddPartitionsToTxnTopic(name=to.name, partitions=list(partitions or (0,)))
        return AddPartitionsToTxnRequest(**mine, v3_and_below_topics=[topic])

    def add_group(self, group: str, **options: Any) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(**self.who(**options), group_id=group)

    def batch(self, to: Topic, *values: bytes, partition: int = 0, **options: Any) -> bytes:
        """Return the next batch for a partition; it uses up a sequence unless the caller passes
        one."""
        topic_partition = to.name, partition
        mine = {
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "base_sequence": self.sequences[topic_partition],
            "transactional": True,
        }
        if "base_sequence" not in options:
            self.sequences[topic_partition] += len(values)
        return given.batch(*values, **(mine | options))

    def produce(self, to: Topic, *values: bytes, **options: Any) -> ProduceRequest:
        """Return the request that produces a batch; options are those of `batch`."""
        return given.produce(
            to,
            self.batch(to, *values, **options),
            partition=options.get("partition", 0),
            transactional_id=self.transactional_id,
        )

    def commit(self, group: str, to: Topic, offset: int, **options: Any) -> TxnOffsetCommitRequest:
        """Return the request that commits the offset of the topic's partition 0."""
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        topic = TxnOffsetCommitRequestTopic(name=to.name, topic_id=to.id, partitions=[partition])
        return TxnOffsetCommitRequest(**self.who(**options), group_id=group, topics=[topic])

    def end(self, *, committed: bool = True, **options: Any) -> EndTxnRequest:
        return EndTxnRequest(**self.who(**options), committed=committed)

    def describe(self) -> DescribeTransactionsRequest:
        return DescribeTransactionsRequest(transactional_ids=[self.transactional_id])

    # -- the setting, not compared ----------------------------------------------------------------

    def do(self, request: Any, until: Until | None = None) -> Any:
        """Send a request that must succeed, as the client under test would."""
        self.s.sent.append(APIS[type(request)].key)
        return self.s.do(
            request, until=until or has_no_error, version=self.s.last_version(request), on="main"
        )

    def start(self, timeout_ms: int = 60_000) -> "Producer":
        """Take the next epoch of the transactional id."""
        finding = FindCoordinatorRequest(coordinator_keys=[self.transactional_id], key_type=1)
        self.s.do(finding, until=lambda r: r.coordinators[0].error_code == 0)
        self.adopt(self.do(self.init(timeout_ms)))
        return self

    def adopt(self, answer: Any) -> Any:
        """Continue with the producer id and epoch of an answer, if it has them."""
        if answer != CLOSED and not answer.error_code and answer.producer_id >= 0:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer

    def join(self, to: Topic, *partitions: int) -> "Producer":
        """Add partitions to the transaction, if clients of the protocol do so."""
        if not self.s.newer:
            self.do(self.add(to, *partitions))
        return self

    def write(self, to: Topic, *values: bytes, partition: int = 0) -> "Producer":
        """Write values in the transaction."""
        self.join(to, partition)
        request = self.produce(to, *(values or (b"x",)), partition=partition)
        self.do(request)
        return self

    def commit_offset(self, group: str, to: Topic, offset: int) -> "Producer":
        """Commit a group's offset in the transaction."""
        if not self.s.newer:
            self.do(self.add_group(group))
        self.do(self.commit(group, to, offset))
        return self

    def finish(self, *, committed: bool = True) -> "Producer":
        """End the transaction; return when its markers are written."""
        self.adopt(self.do(self.end(committed=committed)))
        self.wait_until_ended()
        return self

    def wait_until_ended(self) -> None:
        """Wait until the transaction is not being ended."""
        self.s.do(self.describe(), until=has_ended)

    def freeze(self, to: Topic, *, committed: bool = True) -> "Producer":
        """Let the transaction end in a state that lasts: one partition refuses its marker."""
        self.do(markers(self, to, committed=False, coordinator_epoch=LATER_COORDINATOR))
        self.adopt(self.do(self.end(committed=committed)))
        return self

    # -- compared ----------------------------------------------------------------------------------

    def ask(self, request: Any, **options: Any) -> Any:
        """Ask as `s.ask`, with the versions of the client under test; adopt the answer."""
        tested = APIS[type(request)] is self.s.api
        version = self.s.version if tested else self.s.last_version(request)
        answer = self.s.ask(request, version=version, **options)
        if isinstance(request, EndTxnRequest | InitProducerIdRequest):
            self.adopt(answer)
        return answer

    def ends(self, *, committed: bool = True) -> None:
        """End the transaction, and wait for its markers."""
        self.ask(self.end(committed=committed))
        self.s.ask(self.describe(), until=has_ended)

    def aftermath(self, *topics: Topic) -> None:
        """Ask for the state of the transaction, and for the records."""
        self.s.ask(self.describe(), until=has_ended)
        for to in topics:
            seen(self.s, to)


def has_no_error(answer: Any) -> bool:
    """Return whether an answer has no error at any depth."""
    if isinstance(answer, list):
        return all(map(has_no_error, answer))
    if not isinstance(answer, Message):
        return True
    fields = {spec.name: getattr(answer, spec.name) for spec in fields_of(type(answer))}
    return all(
        not value if name.endswith("error_code") else has_no_error(value)
        for name, value in fields.items()
    )


def has_ended(answer: Any) -> bool:
    """Return whether the one described transaction is in no intermediate state."""
    return not answer.transaction_states[0].transaction_state.startswith("Prepare")


def is_no_longer_concurrent(answer: Any) -> bool:
    """Return whether no earlier transaction made the broker answer CONCURRENT_TRANSACTIONS."""
    return answer == CLOSED or answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS


def producer(s: Peer, suffix: str = "x", timeout_ms: int = 60_000) -> Producer:
    """Return a producer that has its id and may begin."""
    return Producer(s, s.name(suffix)).start(timeout_ms)


def worn(s: Peer) -> Producer:
    """Return the producer of a scenario with `worn`: at epoch 32,765."""
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
    """Return the request for a marker, as a coordinator or an operator sends it."""
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
    """Ask for the records of partitions at both isolation levels, and for their producers."""
    for each in partitions or (0,):
        for isolation in (UNCOMMITTED, COMMITTED):
            s.ask(given.fetch(to, partition=each, isolation_level=isolation))
        topic = TopicRequest(name=to.name, partition_indexes=[each])
        s.ask(DescribeProducersRequest(topics=[topic]))
