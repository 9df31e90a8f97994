"""What has gone wrong with transactions in other brokers, replayed over the wire and restarts.

Each test names the report that it stands for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.testing import Broker
from tests.integration.adversary.process import BrokerProcess
from tests.integration.transactions.metered import Figures
from tests.integration.transactions.transactor import (
    TV1,
    TV2,
    Protocol,
    Transactor,
    Wire,
    settled,
    until,
)

KEYS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}
PATIENT = {**KEYS, "transaction.blocking.max.wait.ms": "10000"}
PROTOCOLS = pytest.mark.parametrize("protocol", [TV1, TV2], ids=["older", "newer"])
NONE = ErrorCode.NONE
LAST_SEQUENCE = 2**31 - 1
WAITERS = "kafka_coordinator_transaction_waiters"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(KEYS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def wire(servers: str) -> Iterator[Wire]:
    with Wire(servers) as wire:
        yield wire


@pytest.fixture
def topic(wire: Wire, request: pytest.FixtureRequest) -> str:
    name = f"t-{abs(hash(request.node.name))}"
    wire.create(name)
    return name


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker in a process of its own, with a topic t."""
    with BrokerProcess(tmp_path, program="unmarked_broker", **KEYS) as broker:
        with Wire(broker.bootstrap_servers) as wire:
            wire.create("t")
        yield broker


@contextmanager
def killed(broker: BrokerProcess) -> Iterator[Wire]:
    """A connection after kill -9 and a restart."""
    broker.kill()
    broker.launch()
    broker.wait_until_serving()
    with Wire(broker.bootstrap_servers) as wire:
        yield wire


def begun(wire: Wire, topic: str, protocol: Protocol, name: str = "") -> Transactor:
    """A producer with a record of an open transaction at the end of the topic."""
    x = Transactor(wire, name or f"x-{topic}", protocol)
    x.init()
    if protocol is TV1:
        assert x.add((topic, 0)) is NONE
    assert x.send(topic, b"first", sequence=0).error is NONE
    return x


# -- writing --------------------------------------------------------------------------------------


@PROTOCOLS
def test_kafka_12671_a_produce_that_comes_after_the_abort_opens_nothing(
    wire: Wire, topic: str, protocol: Protocol
) -> None:
    x = Transactor(wire, f"x-{topic}", protocol)
    x.init()
    other = f"{topic}-other"
    wire.create(other)
    if protocol is TV1:
        assert x.add((topic, 0), (other, 0)) is NONE
    assert x.send(other, b"something", sequence=0).error is NONE
    epoch = x.epoch
    x.end(committed=False)
    settled(wire, (other, 0))
    x.epoch = epoch
    x.post(topic, b"late", sequence=0)
    older, newer = ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_EPOCH
    # And no plausible offset comes with it.
    assert x.sent() == (older if protocol is TV1 else newer, -1)
    settled(wire, (topic, 0))
    # Where the partition was added the abort has left its marker.
    assert wire.end_offset(topic, committed=False) == (1 if protocol is TV1 else 0)


def test_kafka_14402_without_adding_its_partition_nobody_writes(wire: Wire, topic: str) -> None:
    x = Transactor(wire, f"x-{topic}", TV1)
    x.init()
    for version, refused in (
        (10, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
    ):
        x.protocol = TV1._replace(produce=version)
        x.post(topic, b"unasked", sequence=0)
        assert x.sent() == (refused, -1)
    assert wire.end_offset(topic, committed=False) == 0


def test_kafka_15653_what_waits_for_the_coordinator_keeps_its_own_bytes(tmp_path: Path) -> None:
    """While a record waits to be added to its transaction, whose markers of the one before are held
    back, the next request comes into the buffer where it lay."""
    figures = Figures()
    keys = {**PATIENT, **figures.keys}
    with BrokerProcess(tmp_path, program="unmarked_broker", **keys) as broker:
        with Wire(broker.bootstrap_servers) as wire:
            wire.create("t")
            x = begun(wire, "t", TV2, "x")
            (tmp_path / "die").write_text("-")
            x.end()
            x.post("t", b"a" * 3000, sequence=0)
            figures.wait_for(WAITERS, 1)
            other = Transactor(wire, "other", TV2)
            other.post("t", b"b" * 3000, sequence=0)
            with Wire(broker.bootstrap_servers) as later:
                # Who came later is answered: the request before it has been received, too.
                assert later.end_offset("t", committed=True) == 0
            (tmp_path / "die").unlink()
            assert x.sent().error is NONE
            assert other.sent().error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            x.end()
            settled(wire, ("t", 0))
            assert wire.read("t")[0] == [b"first", b"a" * 3000]


def test_the_sequence_wraps_in_a_transaction(wire: Wire, topic: str) -> None:
    x = Transactor(wire, f"x-{topic}", TV1)
    x.init()
    assert x.add((topic, 0)) is NONE
    five = [b"%d" % number for number in range(5)]
    assert x.send(topic, *five, sequence=LAST_SEQUENCE - 2) == (NONE, 0)
    # Its last record has sequence 1: 2 is the next.
    assert x.send(topic, b"5", sequence=3).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert x.send(topic, b"5", sequence=2) == (NONE, 5)
    assert x.send(topic, *five, sequence=LAST_SEQUENCE - 2) == (NONE, 0)
    x.end()
    settled(wire, (topic, 0))
    x.transact(topic, b"6", sequence=3)
    settled(wire, (topic, 0))
    assert wire.read(topic)[0] == [*five, b"5", b"6"]


def test_what_waits_out_the_transaction_before_belongs_to_its_own(tmp_path: Path) -> None:
    """Its guard was taken away by the marker that it waited for; so Java's clients had to abort."""
    figures = Figures()
    keys = {**PATIENT, **figures.keys}
    with BrokerProcess(tmp_path, program="unmarked_broker", **keys) as broker:
        servers = broker.bootstrap_servers
        with Wire(servers) as wire, Wire(servers) as other:
            wire.create("t")
            x = begun(wire, "t", TV2, "x")
            assert x.commit_offset("g", "t", 1) is NONE
            (tmp_path / "die").write_text("-")
            x.end()
            x.post("t", b"second", sequence=0)
            other.post(x.offset_commit("g", "t", 2), TV2.offsets)
            figures.wait_for(WAITERS, 2)
            (tmp_path / "die").unlink()
            assert x.sent().error is NONE
            assert other.take().topics[0].partitions[0].error_code == 0
            x.end()
            settled(wire, ("t", 0))
            assert wire.read("t")[0] == [b"first", b"second"]


# -- restarts -------------------------------------------------------------------------------------


@PROTOCOLS
def test_redpanda_6018_what_was_added_before_a_crash_is_in_the_transaction_after_it(
    mortal: BrokerProcess, protocol: Protocol
) -> None:
    with Wire(mortal.bootstrap_servers) as wire:
        x = begun(wire, "t", protocol)
    with killed(mortal) as wire:
        x.wire = wire
        if protocol is TV1:
            assert x.add_group("g") is NONE
        assert x.commit_offset("g", "t", 7) is NONE
        x.end()
        settled(wire, ("t", 0))
        assert wire.read("t")[0] == [b"first"]
        told = until(lambda: wire.committed("g", "t"), lambda told: told[0] is NONE)
        assert told == (NONE, 7)


@PROTOCOLS
def test_librdkafka_3575_a_sequence_that_was_acknowledged_is_known_after_a_crash(
    mortal: BrokerProcess, protocol: Protocol
) -> None:
    with Wire(mortal.bootstrap_servers) as wire:
        x = begun(wire, "t", protocol)
    with killed(mortal) as wire:
        x.wire = wire
        assert x.send("t", b"second", sequence=1) == (NONE, 1)
        x.end()
        settled(wire, ("t", 0))
        assert wire.read("t")[0] == [b"first", b"second"]


@PROTOCOLS
def test_librdkafka_4953_five_in_flight_over_a_crash_come_once(
    mortal: BrokerProcess, protocol: Protocol
) -> None:
    with Wire(mortal.bootstrap_servers) as wire:
        x = begun(wire, "t", protocol)
        for sequence in range(1, 6):
            x.post("t", b"%d" % sequence, sequence=sequence)
        assert [x.sent() for _ in range(5)] == [(NONE, offset) for offset in range(1, 6)]
    with killed(mortal) as wire:
        x.wire = wire
        again = [x.send("t", b"%d" % number, sequence=number) for number in range(1, 6)]
        assert again == [(NONE, offset) for offset in range(1, 6)]
        x.end()
        settled(wire, ("t", 0))
        assert wire.read("t")[0] == [b"first", b"1", b"2", b"3", b"4", b"5"]


def test_redpanda_5090_before_its_markers_are_written_nobody_reads_a_decided_transaction(
    mortal: BrokerProcess,
) -> None:
    with Wire(mortal.bootstrap_servers) as wire:
        (mortal.directory / "die").write_text("-")
        x = begun(wire, "t", TV2)
        assert x.commit_offset("g", "t", 7) is NONE
        x.end()
    with killed(mortal) as wire:
        told = until(
            lambda: wire.committed("g", "t"),
            lambda told: told[0] is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )
        assert told == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert wire.read("t") == ([], [])
        assert wire.end_offset("t", committed=True) == 0
        (mortal.directory / "die").unlink()
        settled(wire, ("t", 0))
        assert wire.read("t") == ([b"first"], [])
        told = until(lambda: wire.committed("g", "t"), lambda told: told[0] is NONE)
        assert told == (NONE, 7)


# -- reading --------------------------------------------------------------------------------------


@PROTOCOLS
def test_redpanda_3036_the_last_stable_offset_is_not_read(
    wire: Wire, topic: str, protocol: Protocol
) -> None:
    done = Transactor(wire, f"done-{topic}", protocol)
    done.init()
    done.transact(topic, b"before", sequence=0)
    settled(wire, (topic, 0))
    stable = wire.end_offset(topic, committed=True)
    x = begun(wire, topic, protocol)
    assert wire.end_offset(topic, committed=True) == stable
    assert wire.read(topic)[0] == [b"before"]
    assert wire.read(topic, stable)[0] == []
    x.end(committed=False)
    settled(wire, (topic, 0))
    # Where data is read that was aborted, it is said to be.
    assert wire.read(topic, stable) == ([b"first"], [(x.producer_id, stable)])


def test_kafka_17507_no_older_offset_is_told_after_the_end_of_a_transaction(
    servers: str, wire: Wire, topic: str
) -> None:
    x = Transactor(wire, f"x-{topic}", TV2)
    x.init()
    with Wire(servers) as reader:
        for offset in range(50):
            assert x.commit_offset(topic, topic, offset) is NONE
            x.end()
            told = until(lambda: reader.committed(topic, topic), lambda it: it[0] is NONE)
            assert told == (NONE, offset)
