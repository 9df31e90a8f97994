"""Produce: requests and batches with values that a producer must not send."""

import struct

from barnabas.protocol.messages.produce import (
    API,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.referee import given
from tests.referee.given import batch, fetch, list_offsets, produce
from tests.referee.scenario import Peer, Scenarios
from tests.referee.scenarios.produce import resealed

scenario = Scenarios(API)

LATEST = -1
ATTRIBUTES_AT = 21


def together(*topics: TopicProduceData, timeout_ms: int = 10_000) -> ProduceRequest:
    return ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=list(topics))


def to_partitions(to: given.Topic, *data: tuple[int, bytes]) -> TopicProduceData:
    return TopicProduceData(
        name=to.name,
        topic_id=to.id,
        partition_data=[PartitionProduceData(index=i, records=r) for i, r in data],
    )


@scenario
def offsets_are_the_brokers(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(to, batch(b"a", b"b", base_offset=0)))
    s.ask(produce(to, batch(b"c", base_offset=77)))
    s.ask(produce(to, batch(b"d", base_offset=-5)))
    s.ask(fetch(to))


@scenario
def leader_epochs_are_the_brokers(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(to, batch(b"a", leader_epoch=9)))
    s.ask(fetch(to))


@scenario
def a_batch_that_claims_log_append_time(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(to, batch(b"a", timestamp_type=1)))
    s.ask(list_offsets(to.name, (0, LATEST)))
    s.ask(produce(to, batch(b"b")))


@scenario
def unknown_attributes(s: Peer) -> None:
    to = given.topic(s)
    for attributes in (0x40, 0x80, 0x4000):
        s.ask(produce(to, resealed(batch(b"a"), ATTRIBUTES_AT, struct.pack(">h", attributes))))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def an_unknown_codec(s: Peer) -> None:
    to = given.topic(s)
    for codec in (5, 7):
        s.ask(produce(to, resealed(batch(b"a"), ATTRIBUTES_AT, struct.pack(">h", codec))))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def negative_timestamps(s: Peer) -> None:
    to = given.topic(s)
    for at in (-1, -2, 0):
        s.ask(produce(to, batch(b"a", since=at)))
    s.ask(list_offsets(to.name, (0, LATEST), (0, LATEST)))
    s.ask(list_offsets(to.name, (0, 0)))


@scenario
def an_empty_value_and_none(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(to, batch(b"", None, key=b"")))
    s.ask(fetch(to))


@scenario
def the_same_partition_twice_in_one_request(s: Peer) -> None:
    to = given.topic(s, partitions=2)
    s.ask(together(to_partitions(to, (0, batch(b"a")), (1, batch(b"b")))))
    s.ask(list_offsets(to.name, (0, LATEST), (1, LATEST)))


@scenario
def a_partition_below_zero(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(to, batch(b"a"), partition=-1))
    s.ask(produce(to, batch(b"a"), partition=2**31 - 1))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def a_topic_without_partitions(s: Peer) -> None:
    to = given.topic(s)
    s.ask(together(to_partitions(to)))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def a_batch_that_is_cut_off(s: Peer) -> None:
    to = given.topic(s)
    whole = batch(b"x" * 100)
    for kept in (1, 11, 12, 16, 17, 60, 61, len(whole) - 1):
        s.ask(produce(to, whole[:kept]))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def bytes_behind_a_batch(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(to, batch(b"a") + bytes(5)))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def a_timeout_below_zero(s: Peer) -> None:
    to = given.topic(s)
    s.ask(together(to_partitions(to, (0, batch(b"a"))), timeout_ms=-1))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def a_producer_without_sequence(s: Peer) -> None:
    to = given.topic(s)
    id, epoch = given.producer_id(s)
    s.ask(produce(to, batch(b"a", producer_id=id, producer_epoch=epoch, base_sequence=-1)))
    s.ask(list_offsets(to.name, (0, LATEST)))


@scenario
def a_producer_id_that_was_never_assigned(s: Peer) -> None:
    to = given.topic(s)
    s.ask(produce(to, batch(b"a", producer_id=2**62, producer_epoch=3, base_sequence=0)))
    s.ask(produce(to, batch(b"b", producer_id=2**62, producer_epoch=2, base_sequence=1)))
    s.ask(produce(to, batch(b"b", producer_id=2**62, producer_epoch=3, base_sequence=1)))
    s.ask(list_offsets(to.name, (0, LATEST)))
