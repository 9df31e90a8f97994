"""Markers that repeat: a broker that remembers them and one that does not have the same answers,
logs and producers."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.handlers.write_txn_markers import _results, _write_again, again
from barnabas.broker.server.repeats import FEW
from barnabas.broker.transactions.marker_channel import framing
from barnabas.broker.transactions.marker_writer import MarkerWrite, MarkerWriter
from barnabas.broker.transactions.request_batcher import ACCEPTED
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.header import encode_request_header
from barnabas.protocol.messages import write_txn_markers
from barnabas.protocol.messages.write_txn_markers import (
    API,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.steps import at_once
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.producers.verification import UNVERIFIED
from tests.simulation.repeats.produce import TIME_MS, Producer, batch
from tests.simulation.repeats.twins import Side, Twins, twins
from tests.support.mutants import finds, hunt

VERSION, EPOCH = 2, 4
FIRST, SECOND, LONG = ("t", 0), ("u", 0), ("a-long-name", 0)
Marker = tuple[tuple[str, int], TxnMarker]


def marker(
    producer: int = 1000,
    *,
    at: tuple[str, int] = FIRST,
    epoch: int = EPOCH,
    coordinator: int = 0,
    committed: bool = True,
    version: int = 0,
) -> Marker:
    return at, TxnMarker(producer, epoch, coordinator, committed, version)


def asked(each: TxnMarker, *places: tuple[str, list[int]]) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=each.producer_id,
        producer_epoch=each.producer_epoch,
        transaction_result=each.committed,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=at) for name, at in places],
        coordinator_epoch=each.coordinator_epoch,
        transaction_version=each.transaction_version,
    )


def body(*markers: Marker) -> bytes:
    some = [asked(each, (topic, [index])) for (topic, index), each in markers]
    return encode(WriteTxnMarkersRequest(markers=some), VERSION)


class Rig:
    """Two brokers that get markers of another broker."""

    def __init__(self, pair: Twins) -> None:
        self.pair = pair
        for topic, _ in (FIRST, SECOND, LONG):
            pair.create(topic)
        # It creates the topic of the coordinators, whose epochs a marker may have.
        Producer(pair)

    def of_brokers(self, on: int = 0, *, are: bool = True) -> None:
        """Have a connection's requests be those of a broker."""
        for side in self.pair.sides:
            side.wires[on].transport.peer.get_protocol()._dispatcher._inter_broker = are

    def send(self, content: bytes, client: str = "broker-0", on: int = 0) -> bool:
        """Send markers; return whether memory has answered."""
        before = self.pair.hits_of(write_txn_markers)
        self.pair.exchange(encode_request_header(API.key, VERSION, 7, client) + content, on=on)
        self.pair.state()
        return self.pair.hits_of(write_txn_markers) > before

    def write(self, *markers: Marker, on: int = 0) -> bool:
        return self.send(body(*markers), on=on)

    def open(self, *places: tuple[str, int], producer: int = 1000, epoch: int = EPOCH) -> None:
        """Begin a producer's transaction, or go on with it."""

        async def append(side: Side) -> None:
            for place in places:
                partition = side.partition(*place)
                entry = partition.log.producers.entry(producer)
                known = entry is not None and entry.producer_epoch == epoch and entry.batches
                records = batch(
                    producer_id=producer,
                    producer_epoch=epoch,
                    base_sequence=entry.last_sequence + 1 if entry is not None and known else 0,
                    transactional=True,
                )
                partition.append(bytearray(records), now_ms=TIME_MS, guard=UNVERIFIED)

        self.pair.both(append)

    def origins(self) -> list[Any]:
        return [side.broker._coordination.transactions.origins for side in self.pair.sides]


@contextmanager
def known(*markers: Marker) -> Iterator[Rig]:
    """Run brokers that have seen markers like these."""
    with twins() as pair:
        rig = Rig(pair)
        rig.send(body())
        rig.of_brokers()
        for each in markers or (marker(),):
            assert not rig.write(each)
        yield rig


def test_known_markers_are_served_with_the_answer_of_the_handler() -> None:
    with known(marker(), marker(at=SECOND), marker(at=LONG)) as rig:
        rig.open(FIRST, SECOND, LONG)
        assert rig.write(marker())
        assert rig.write(marker(committed=False, at=SECOND))
        rig.open(FIRST, producer=2000)
        assert rig.write(marker(2000), marker(at=LONG))


def test_unknown_topic_epoch_and_version_are_left_to_the_handler() -> None:
    with known() as rig:
        assert not rig.write(marker(at=SECOND))
        assert not rig.write(marker(coordinator=1))
        assert not rig.write(marker(version=2))
        assert not rig.write(marker(-1))
        assert not rig.write(marker(), marker(at=LONG))


@finds(_write_again, "if not origins.has_epoch(coordinator_epoch):", "if False:")
def test_coordinator_epoch_that_is_unknown_again_is_refused() -> None:
    with known() as rig:
        for each in rig.origins():
            each._newest_epoch = 9
        assert not rig.write(marker(coordinator=9))
        assert rig.write(marker(coordinator=9))
        for each in rig.origins():
            each._newest_epoch = 0
        assert not rig.write(marker(coordinator=9))


@finds(_write_again, " or not writer.accepts(writes)")
@finds(_write_again, "or any(codes)")
@finds(again, "or results[0].partitions[0].error_code")
@finds(MarkerWriter.accepts, "except KafkaError: return False", "except KafkaError: pass")
def test_fenced_marker_is_refused_alone_and_among_others() -> None:
    with known(marker(), marker(at=SECOND)) as rig:
        rig.open(FIRST, SECOND, epoch=EPOCH + 1)
        rig.open(SECOND, producer=2000)
        assert not rig.write(marker())
        assert not rig.write(marker(2000, at=SECOND), marker(at=FIRST))
        rig.open(LONG, epoch=EPOCH + 1)
        assert not rig.write(marker(at=LONG))
        assert not rig.write(marker(2000, at=LONG))
        assert rig.write(marker(3000, at=LONG))


@finds(MarkerWriter.accepts, "return len(writes) == 1 or len(asked) == len(writes)", "return True")
def test_two_markers_of_one_producer_for_one_partition_are_left_to_the_handler() -> None:
    with known() as rig:
        rig.open(FIRST)
        assert not rig.write(marker(epoch=EPOCH + 1), marker())


@finds(MarkerWriter.accepts, "or not partition.commits_at_once")
def test_changed_leadership_is_noticed() -> None:
    with known() as rig:
        rig.pair.lead(isr=[0, 1], replicas=[0, 1])
        assert not rig.write(marker())
        rig.pair.lead(leader=1, leader_epoch=2, isr=[1], replicas=[0, 1])
        assert not rig.write(marker())


@finds(MarkerWriter.accepts, "or partition.is_under_min_isr")
def test_too_small_isr_is_noticed_before_another_marker_is_written() -> None:
    with known(marker(), marker(at=SECOND)) as rig:
        rig.pair.lead("u", isr=[])
        assert not rig.write(marker(at=SECOND))
        assert not rig.write(marker(), marker(2000, at=SECOND))


@finds(MarkerWriter.accepts, "or partition.log.log_dir.failure is not None")
def test_failed_disk_is_noticed() -> None:
    with known() as rig:
        for side in rig.pair.sides:
            side.partition().log.log_dir.failure = OSError(5, "broken")
        write = MarkerWrite(TopicPartition(*FIRST), marker()[1], print)
        assert not rig.pair.fast.broker._coordination.transactions.writer.accepts([write])
        assert not rig.write(marker())


@finds(MarkerWriter.accepts, "partition is None or ")
def test_removed_partition_is_noticed() -> None:
    with known() as rig:
        rig.pair.delete()
        rig.pair.wait(2)
        assert not rig.write(marker())


@finds(_write_again, "origins.is_outdated(context) or ")
def test_later_connection_of_the_coordinator_is_noticed() -> None:
    with known() as rig:
        assert rig.write(marker())
        for _ in range(2):
            rig.write(marker(), on=1)
        assert not rig.write(marker())
        for each in rig.origins():
            each._newest_connections.clear()
        # A request that is served again outdates an earlier connection too.
        assert rig.write(marker(), on=1)
        assert not rig.write(marker())


def test_other_client_id_and_odd_bytes_are_left_to_the_handler() -> None:
    content = body(marker())
    with known() as rig:
        odd = bytearray(content)
        odd[11] = 2
        rig.send(bytes(odd))
        wrong = [content + b"\0", content[:-1] + b"\1"]
        for each in wrong + [content[:cut] for cut in range(len(content))]:
            # The last one may have closed the connection.
            rig.write(marker())
            rig.of_brokers()
            rig.write(marker())
            assert rig.write(marker())
            assert not rig.send(each)
        rig.write(marker())
        assert not rig.send(content, client="broker-2")


@finds(again, "context.api_version != MARKERS.version or ")
@finds(again, " or not context.inter_broker")
def test_request_of_a_client_and_of_another_version_is_not_remembered() -> None:
    request: Any = decode(API.request, VERSION, body(marker()))
    answer = at_once(_results(request, ErrorCode.NONE))
    older: Any = SimpleNamespace(api_version=1, inter_broker=True)
    nothing: Any = None
    assert again(nothing, nothing, False, request, older, answer) is None
    with known() as rig:
        rig.of_brokers(are=False)
        for _ in range(2):
            assert not rig.write(marker(at=LONG))


@finds(again, "len(topics) != 1 or ")
@finds(again, "len(topics[0].partition_indexes) != 1", "False")
def test_marker_for_several_partitions_is_left_to_the_handler() -> None:
    with known() as rig:
        for places in ([("t", [0]), ("u", [0])], [("t", [0, 0])], [("t", [])], []):
            request = WriteTxnMarkersRequest(markers=[asked(marker()[1], *places)])
            assert not any(rig.send(encode(request, VERSION)) for _ in range(2))


def test_markers_above_the_limit_are_left_to_the_handler() -> None:
    with known() as rig:
        assert rig.write(*(marker(number) for number in range(FEW)))
        assert not rig.write(*(marker(number) for number in range(FEW + 1)))


PLACES = st.sampled_from([FIRST, SECOND, LONG, ("nowhere", 0), ("__transaction_state", 0)])
MARKERS = st.builds(
    lambda at, **fields: marker(at=at, **fields),
    PLACES,
    producer=st.sampled_from([1000, 2000, -1]),
    epoch=st.integers(EPOCH - 1, EPOCH + 1),
    coordinator=st.sampled_from([0, 0, 0, 1]),
    committed=st.booleans(),
    version=st.sampled_from([0, 0, 2]),
)
OPENED = st.tuples(
    st.sampled_from([FIRST, SECOND, LONG]),
    st.sampled_from([1000, 2000]),
    st.integers(EPOCH, EPOCH + 1),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.lists(MARKERS, max_size=4), OPENED), max_size=12))
def test_random_requests_have_the_same_answers_and_effects(steps: Any) -> None:
    with known(marker(), marker(2000, at=SECOND), marker(3000, at=LONG)) as rig:
        for step in steps:
            if isinstance(step, list):
                rig.write(*step)
                continue
            place, producer, epoch = step
            with suppress(KafkaError):
                rig.open(place, producer=producer, epoch=epoch)


@settings(max_examples=100, deadline=None)
@given(st.lists(MARKERS, min_size=1, max_size=5))
def test_requests_put_together_equal_encoded_ones(markers: Any) -> None:
    frames = framing().of([(TopicPartition(*place), each) for place, each in markers])
    assert frames.request == body(*markers)
    request: Any = decode(API.request, VERSION, frames.request)
    answer: Any = at_once(_results(request, ErrorCode.NONE))
    assert frames.accepted == encode(answer, VERSION)
    assert frames.decode(b"head" + frames.accepted, 4) is ACCEPTED
    answer.markers[-1].topics[0].partitions[0].error_code = 3
    assert frames.decode(encode(answer, VERSION), 0) == answer


test_missing_check_is_found = hunt(globals())
