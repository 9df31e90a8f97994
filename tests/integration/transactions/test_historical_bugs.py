"""Bugs that other brokers had with transactions, replayed over the wire and restarts.

Each test names the report of its bug.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.testing import Broker
from tests.integration.transactions.metered import Figures
from tests.integration.transactions.on_disk import UNMARKED
from tests.support.brokers.process import BrokerProcess
from tests.support.topic_names import topic_name
from tests.support.transactor import (
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
    name = topic_name(request)
    wire.create(name)
    return name


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker in its own process, with a topic t."""
    with BrokerProcess(tmp_path, program=UNMARKED, **KEYS) as broker:
        with Wire(broker.bootstrap_servers) as wire:
            wire.create("t")
        yield broker


@contextmanager
def killed(broker: BrokerProcess) -> Iterator[Wire]:
    """Kill and restart the broker; return a new connection."""
    broker.kill()
    broker.start()
    with Wire(broker.bootstrap_servers) as wire:
        yield wire


def begun(wire: Wire, topic: str, protocol: Protocol, name: str = "") -> Transactor:
    """Return a producer with a record of an open transaction at the end of the topic."""
    x = Transactor(wire, name or f"x-{topic}", protocol)
    x.init()
    if protocol is TV1:
        assert x.add((topic, 0)) is NONE
    assert x.send(topic, b"first", sequence=0).error is NONE
    return x


# -- writing --------------------------------------------------------------------------------------


@PROTOCOLS
def test_kafka_12671_late_produce_after_an_abort_opens_no_transaction(
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
    # The response has no plausible offset.
    assert x.sent() == (older if protocol is TV1 else newer, -1)
    settled(wire, (topic, 0))
    # If the partition was added, the abort has left its marker.
    assert wire.end_offset(topic, committed=False) == (1 if protocol is TV1 else 0)


def test_kafka_14402_produce_to_a_partition_that_was_not_added_is_refused(
    wire: Wire, topic: str
) -> None:
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


def test_kafka_15653_produce_waiting_for_verification_keeps_its_bytes(tmp_path: Path) -> None:
    """While a record waits to be added to its transaction, because the markers of the previous one
    are held back, the next request is received into the buffer that held the record."""
    figures = Figures()
    keys = {**PATIENT, **figures.keys}
    with BrokerProcess(tmp_path, program=UNMARKED, **keys) as broker:
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
                # The later request is answered, so the one before it has been received, too.
                assert later.end_offset("t", committed=True) == 0
            (tmp_path / "die").unlink()
            assert x.sent().error is NONE
            assert other.sent().error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            x.end()
            settled(wire, ("t", 0))
            assert wire.read("t")[0] == [b"first", b"a" * 3000]


def test_sequence_wraps_around_within_a_transaction(wire: Wire, topic: str) -> None:
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


@pytest.mark.parametrize("joined", [False, True], ids=["between_transactions", "in_the_next"])
def test_late_repeat_of_a_forgotten_batch_leaves_the_next_transaction_its_sequence(
    wire: Wire, topic: str, joined: bool
) -> None:
    """The broker keeps the last five batches. An earlier one is repeated, as by a late request of
    the older transaction; a new replica has fewer if compaction has removed batches."""
    x = Transactor(wire, f"x-{topic}", TV1)
    x.init()
    assert x.add((topic, 0)) is NONE
    for sequence in range(6):
        assert x.send(topic, b"%d" % sequence, sequence=sequence).error is NONE
    x.end()
    settled(wire, (topic, 0))
    if joined:
        assert x.add((topic, 0)) is NONE
    late = x.send(topic, b"0", sequence=0).error
    expected = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if joined else ErrorCode.TRANSACTION_ABORTABLE
    assert late is expected
    x.transact(topic, b"6", sequence=6)
    settled(wire, (topic, 0))
    assert wire.read(topic)[0] == [b"%d" % sequence for sequence in range(7)]


def test_produce_waiting_for_the_previous_markers_keeps_its_verification_guard(
    tmp_path: Path,
) -> None:
    """The marker that it waited for removed its verification guard, and Java's clients had to
    abort."""
    figures = Figures()
    keys = {**PATIENT, **figures.keys}
    with BrokerProcess(tmp_path, program=UNMARKED, **keys) as broker:
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
def test_redpanda_6018_partitions_added_before_a_crash_stay_in_the_transaction(
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
def test_librdkafka_3575_acknowledged_sequences_are_known_after_a_crash(
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
def test_librdkafka_4953_five_batches_in_flight_over_a_crash_are_written_once(
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


def test_redpanda_5090_decided_transaction_is_not_read_before_its_markers_are_written(
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
def test_redpanda_3036_record_at_the_last_stable_offset_is_not_returned(
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
    # An answer with aborted records names their transaction.
    assert wire.read(topic, stable) == ([b"first"], [(x.producer_id, stable)])


def test_kafka_17507_offset_fetch_after_end_txn_returns_the_new_offset(
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
