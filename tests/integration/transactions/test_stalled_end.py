"""KAFKA-17754: an EndTxn of an older client is delayed until its producer's next transaction is
open, which it must not end. Its connection is then an older one."""

from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest

from barnabas.protocol.messages import end_txn
from barnabas.testing import Broker
from tests.integration.transactions.stalling_proxy import StallingProxy
from tests.support.ports import free_port
from tests.support.transactor import Wire, settled, until


@contextmanager
def stalled(*, guarded: bool) -> Iterator[tuple[StallingProxy, str]]:
    """Start a broker behind a proxy; yield the proxy and the broker's own address."""
    with StallingProxy(end_txn.API.key) as proxy:
        proxy.to = ("127.0.0.1", free_port())
        keys = {
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}",
            "transaction.fence.older.connections": str(guarded).lower(),
            "transaction.state.log.num.partitions": "1",
        }
        with Broker(keys, port=proxy.to[1]) as broker:
            yield proxy, broker.bootstrap_servers


def producer_of(proxy: StallingProxy) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{proxy.port}",
            "transactional.id": "x",
            "socket.timeout.ms": 500,
            "transaction.timeout.ms": 60_000,
            "reconnect.backoff.ms": 10,
            "retry.backoff.ms": 10,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(20)
    return producer


def commit(producer: confluent_kafka.Producer) -> None:
    """Commit, and repeat the call when the library's error is retriable."""
    while True:
        try:
            return producer.commit_transaction(20)
        except confluent_kafka.KafkaException as error:
            if not error.args[0].retriable():
                raise


@pytest.mark.parametrize(
    ("guarded", "read"),
    [
        pytest.param(True, [b"first"], id="guarded"),
        # Without the guard half of a transaction is committed.
        pytest.param(False, [b"first", b"second"], id="as in other brokers"),
    ],
)
def test_kafka_17754_a_late_end_does_not_end_the_next_transaction(
    guarded: bool, read: list[bytes]
) -> None:
    with stalled(guarded=guarded) as (proxy, direct):
        producer = producer_of(proxy)
        producer.begin_transaction()
        producer.produce("t", b"first", partition=0)
        producer.flush(20)
        proxy.hold()
        # The first EndTxn is held; the library gives it up and commits on another connection.
        commit(producer)
        assert proxy.held.is_set()
        producer.begin_transaction()
        producer.produce("t", b"second", partition=0)
        assert producer.flush(20) == 0
        with Wire(direct) as wire:
            proxy.release()
            if guarded:
                assert wire.read("t")[0] == [b"first"]
                producer.abort_transaction(20)
            settled(wire, ("t", 0))
            values, aborted = wire.read("t")
            assert [value for value in values if not aborted or value != b"second"] == read


def test_clients_with_changing_connections_are_not_fenced() -> None:
    """Connections are closed and opened between transactions and within them."""
    with stalled(guarded=True) as (proxy, direct):
        producer = producer_of(proxy)
        for number in range(3):
            producer.begin_transaction()
            producer.produce("t", b"%d" % number, partition=0)
            producer.flush(20)
            proxy.held.clear()
            proxy.hold()
            commit(producer)
            assert proxy.held.is_set()
        with Wire(direct) as wire:
            settled(wire, ("t", 0))
            assert until(lambda: wire.read("t")[0], lambda it: len(it) == 3) == [b"0", b"1", b"2"]
