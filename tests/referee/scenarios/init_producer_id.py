"""InitProducerId without a transactional id: always a new producer."""

from typing import Any

from barnabas.protocol.messages.init_producer_id import API, InitProducerIdRequest
from tests.referee import given
from tests.referee.scenario import Peer, Scenarios

scenario = Scenarios(API)


def init(timeout_ms: int = 60_000, **options: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=timeout_ms, **options
    )


@scenario
def every_request_gets_another_id(s: Peer) -> None:
    first = s.ask(init())
    second = s.ask(init())
    assert first.producer_id != second.producer_id


@scenario
def the_id_produces(s: Peer) -> None:
    to = given.topic(s)
    mine = s.ask(init())
    producer = {"producer_id": mine.producer_id, "producer_epoch": mine.producer_epoch}
    s.ask(given.produce(to, given.batch(b"a", b"b", base_sequence=0, **producer)))
    s.ask(given.produce(to, given.batch(b"c", base_sequence=2, **producer)))
    s.ask(given.produce(to, given.batch(b"d", base_sequence=5, **producer)))


@scenario
def the_timeout_does_not_matter(s: Peer) -> None:
    s.ask(init(timeout_ms=0))
    s.ask(init(timeout_ms=-1))
    s.ask(init(timeout_ms=2**31 - 1))


@scenario(since=3)
def an_id_and_epoch_of_before(s: Peer) -> None:
    mine = s.ask(init())
    s.ask(init(producer_id=mine.producer_id, producer_epoch=mine.producer_epoch))


@scenario(since=3)
def an_id_without_an_epoch(s: Peer) -> None:
    s.ask(init(producer_id=12))
    s.ask(init(producer_epoch=3))


@scenario
def an_empty_transactional_id(s: Peer) -> None:
    s.ask(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000))


@scenario
def a_transactional_id(s: Peer) -> None:
    s.ask(InitProducerIdRequest(transactional_id=s.name(), transaction_timeout_ms=60_000))
