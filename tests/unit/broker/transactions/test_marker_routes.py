"""Markers go to the leader, many in one request, and wait in a queue while there is no leader."""

from collections.abc import Iterable
from typing import Any

import pytest

from barnabas.broker.cluster.peers import Peer
from barnabas.broker.transactions.marker_channel import MARKERS_PER_REQUEST, MarkerChannel
from barnabas.broker.transactions.marker_routes import MarkerRoutes
from barnabas.broker.transactions.marker_writer import MarkerWrite
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import expect_producers
from barnabas.protocol.messages import write_txn_markers as words
from barnabas.protocol.messages.expect_producers import ExpectedProducer, ExpectProducersRequest
from barnabas.protocol.records.control import TxnMarker
from barnabas.protocol.steps import Steps
from barnabas.protocol.topic_partition import TopicPartition
from tests.support.mutants import finds, hunt
from tests.unit.broker.transactions.fake_peer import FakeCluster, FakePeer, turns

US, OTHER, THIRD = 1, 2, 3
A, B, C = ("a", 0), ("a", 1), ("b", 0)


class PendingMarker:
    """A marker of producer `producer_id`, and the outcomes that it received."""

    def __init__(self, place: TopicPartition, producer_id: int = 7, version: int = 2) -> None:
        self.partition = place
        self.marker = TxnMarker(producer_id, 4, 9, True, version)
        self.wanted = True
        self.told: list[str] = []

    def done(self, code: ErrorCode) -> None:
        self.told.append(code.name)

    def retry(self) -> None:
        self.told.append("again")


class Rig:
    def __init__(self) -> None:
        self.cluster = FakeCluster(US, OTHER, THIRD)
        self.cluster.leaders = {A: OTHER, B: OTHER, C: THIRD}
        self.written: list[TopicPartition] = []
        self.routes = MarkerRoutes(
            US,
            self.cluster,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.cluster.connect,
        )

    def write(self, writes: Iterable[MarkerWrite]) -> Steps[None]:
        """Write markers, in place of this broker's writer."""
        for each in writes:
            yield None
            self.written.append(each.partition)
            each.done(ErrorCode.NONE)

    async def carry(self, *pending_markers: PendingMarker) -> None:
        self.routes.route(pending_markers)
        await turns()

    def peer(self, broker_id: int = OTHER) -> FakePeer:
        return self.cluster.peers[broker_id]


@pytest.fixture
async def rig() -> Rig:
    return Rig()


def answer(codes: dict[tuple[int, TopicPartition], ErrorCode]) -> Any:
    """Return a response with one entry for each marker, in any order."""
    return words.WriteTxnMarkersResponse(
        markers=[
            words.WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    words.WritableTxnMarkerTopicResult(
                        name=topic,
                        partitions=[
                            words.WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=code
                            )
                        ],
                    )
                ],
            )
            for (producer_id, (topic, index)), code in codes.items()
        ]
    )


def fine(pending_markers: Iterable[PendingMarker]) -> Any:
    return answer(
        {(each.marker.producer_id, each.partition): ErrorCode.NONE for each in pending_markers}
    )


async def test_marker_for_led_partition_is_written_at_once(rig: Rig) -> None:
    rig.cluster.leaders[A] = US
    pending = PendingMarker(A)
    rig.routes.route([pending])
    assert (rig.written, pending.told) == ([A], ["NONE"])
    assert rig.cluster.peers == {}


async def test_marker_for_unknown_partition_goes_to_local_log(rig: Rig) -> None:
    await rig.carry(PendingMarker(("gone", 0)))
    assert rig.written == [("gone", 0)]


async def test_markers_for_one_leader_share_a_request_and_keep_their_versions(rig: Rig) -> None:
    """KIP-1228: the version of the transaction travels with the marker."""
    await rig.carry(
        PendingMarker(A), PendingMarker(B), PendingMarker(A, 8, version=1), PendingMarker(C)
    )
    assert rig.peer().sent == [(words.API, 2)]
    newer, other, older = rig.peer().requests[0].markers
    assert (newer.producer_id, newer.producer_epoch, newer.coordinator_epoch) == (7, 4, 9)
    assert (newer.transaction_version, older.transaction_version) == (2, 1)
    assert newer.transaction_result
    for marker, index in ((newer, 0), (other, 1), (older, 0)):
        assert [(each.name, each.partition_indexes) for each in marker.topics] == [("a", [index])]
    assert rig.peer(THIRD).requests[0].markers[0].topics[0].name == "b"


async def test_fault_in_one_outcome_does_not_lose_the_others(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(PendingMarker):
        def done(self, code: ErrorCode) -> None:
            raise ValueError(f"damaged by {code.name}")

    pending_markers = [Faulty(A), PendingMarker(B), PendingMarker(A, 8)]
    await rig.carry(*pending_markers)
    rig.peer().answer(fine(pending_markers))
    await turns()
    assert [each.told for each in pending_markers] == [[], ["NONE"], ["NONE"]]
    assert "damaged" in caplog.text
    later = PendingMarker(B, 9)
    await rig.carry(later)
    assert len(rig.peer().requests) == 2


async def test_outcomes_are_matched_in_any_order_of_response(rig: Rig) -> None:
    first, second, third = PendingMarker(A), PendingMarker(B), PendingMarker(A, 8)
    await rig.carry(first, second, third)
    rig.peer().answer(
        answer(
            {
                (8, A): ErrorCode.INVALID_PRODUCER_EPOCH,
                (7, B): ErrorCode.NOT_LEADER_OR_FOLLOWER,
                (7, A): ErrorCode.NONE,
            }
        )
    )
    await turns()
    told = first.told, second.told, third.told
    assert told == (["NONE"], ["NOT_LEADER_OR_FOLLOWER"], ["INVALID_PRODUCER_EPOCH"])


async def test_markers_gather_while_one_request_is_in_flight(
    rig: Rig,
) -> None:
    first = PendingMarker(A)
    later = [PendingMarker(A, number) for number in range(10, 40)]
    await rig.carry(first)
    await rig.carry(*later)
    assert len(rig.peer().requests) == 1
    rig.peer().answer(fine([first]))
    await turns()
    assert len(rig.peer().requests) == 2
    assert len(rig.peer().requests[1].markers) == 30
    rig.peer().answer(fine(later))
    await turns()
    assert all(each.told == ["NONE"] for each in [first, *later])


async def test_number_of_markers_in_request_is_limited(rig: Rig) -> None:
    many = [PendingMarker(A, number) for number in range(2 * MARKERS_PER_REQUEST + 1)]
    await rig.carry(*many)
    for _ in range(3):
        rig.peer().answer(fine(many))
        await turns()
    sizes = [len(each.markers) for each in rig.peer().requests]
    assert sizes == [MARKERS_PER_REQUEST, MARKERS_PER_REQUEST, 1]
    assert all(each.told == ["NONE"] for each in many)


async def test_broken_connection_fails_only_markers_in_flight(
    rig: Rig,
) -> None:
    lost, waiting = PendingMarker(A), PendingMarker(B)
    await rig.carry(lost)
    await rig.carry(waiting)
    rig.peer().break_()
    await turns()
    assert (lost.told, waiting.told) == (["NETWORK_EXCEPTION"], [])
    rig.peer().answer(fine([waiting]))
    await turns()
    assert waiting.told == ["NONE"]


async def test_marker_missing_from_response_gets_network_exception(rig: Rig) -> None:
    first, second = PendingMarker(A), PendingMarker(B)
    await rig.carry(first, second)
    rig.peer().answer(fine([second]))
    await turns()
    assert (first.told, second.told) == (["NETWORK_EXCEPTION"], ["NONE"])


async def test_unwanted_marker_is_not_sent(rig: Rig) -> None:
    """The coordinator has resigned: the next one sends the marker with its own epoch."""
    first, second = PendingMarker(A), PendingMarker(B)
    await rig.carry(first)
    await rig.carry(second)
    second.wanted = False
    rig.peer().answer(fine([first]))
    await turns()
    assert len(rig.peer().requests) == 1
    assert second.told == []


async def test_leaderless_partition_does_not_delay_other_markers(rig: Rig) -> None:
    rig.cluster.leaders[A] = -1
    waiting, other = PendingMarker(A), PendingMarker(B)
    await rig.carry(waiting, other)
    rig.peer().answer(fine([other]))
    await turns()
    assert (waiting.told, other.told, rig.routes.leaderless) == ([], ["NONE"], 1)
    rig.cluster.changed()
    assert (waiting.told, rig.routes.leaderless) == ([], 1)
    rig.cluster.leaders[A] = THIRD
    rig.cluster.changed()
    assert (waiting.told, rig.routes.leaderless) == (["again"], 0)


async def test_partition_of_dead_leader_counts_as_leaderless(rig: Rig) -> None:
    rig.cluster.dies(OTHER)
    pending = PendingMarker(A)
    await rig.carry(pending)
    assert (pending.told, rig.routes.leaderless, rig.cluster.peers) == ([], 1, {})


async def test_marker_of_deleted_partition_stops_waiting_for_leader(rig: Rig) -> None:
    rig.cluster.leaders[A] = -1
    pending = PendingMarker(A)
    await rig.carry(pending)
    del rig.cluster.leaders[A]
    rig.cluster.changed()
    assert pending.told == ["again"]


async def test_unwanted_leaderless_markers_are_dropped(rig: Rig) -> None:
    rig.cluster.leaders[A] = -1
    first, second = PendingMarker(A), PendingMarker(A, 8)
    await rig.carry(first, second)
    first.wanted = False
    rig.routes.forget_unwanted()
    assert rig.routes.leaderless == 1
    second.wanted = False
    rig.routes.forget_unwanted()
    assert rig.routes.leaderless == 0


async def test_death_of_broker_fails_its_markers_at_once(rig: Rig) -> None:
    """Otherwise the markers of a paused broker would wait until the request times out."""
    pending = PendingMarker(A)
    await rig.carry(pending)
    rig.cluster.dies(OTHER)
    await turns()
    assert pending.told == ["NETWORK_EXCEPTION"]


async def test_close_fails_every_marker(rig: Rig) -> None:
    first, second = PendingMarker(A), PendingMarker(B)
    await rig.carry(first)
    await rig.carry(second)
    await rig.routes.close()
    await turns()
    assert (first.told, second.told) == (["NETWORK_EXCEPTION"], ["NETWORK_EXCEPTION"])
    assert rig.peer().under_way == 0


async def test_superseded_connection_is_opened_again(rig: Rig) -> None:
    """A client that claims the name of this broker must not shut it out."""
    pending = PendingMarker(A)
    await rig.carry(pending)
    rig.peer().answer(answer({(7, A): ErrorCode.NETWORK_EXCEPTION}))
    await turns()
    assert pending.told == ["NETWORK_EXCEPTION"]
    assert rig.peer().aborted == 1


# -- producers that a leader is told of ----------------------------------------------------------


def expected(producer_id: int = 7, topic: str = "a") -> ExpectedProducer:
    return ExpectedProducer(
        transactional_id="x",
        principal=None,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        topic=topic,
        partition_index=0,
    )


async def told_rig() -> Rig:
    """Return routes with the connection that the first marker opens."""
    rig = Rig()
    await rig.carry(PendingMarker(A))
    rig.peer().requests.clear()
    return rig


async def test_producers_of_one_iteration_go_in_one_message() -> None:
    rig = await told_rig()
    producers = [expected(number) for number in range(expect_producers.MOST + 1)]
    assert all(rig.routes.expect(each) for each in producers)
    assert rig.peer().requests == []
    await turns()
    first, second = rig.peer().requests
    assert first.producers + second.producers == producers
    assert len(second.producers) == 1


@finds(MarkerChannel._send, "self._tell()", "pass")
async def test_marker_comes_behind_what_its_partition_is_told() -> None:
    rig = await told_rig()
    rig.routes.route([PendingMarker(A)])
    await turns()
    rig.routes.expect(expected())
    # The answer to the marker before sends the next one at once.
    rig.peer().answer(None)
    kinds = [type(each).__name__ for each in rig.peer().requests]
    assert kinds == ["ExpectProducersRequest", "WriteTxnMarkersRequest"]


@finds(MarkerChannel.expect, "not self._peer.tells(expect_producers.API)", "False")
async def test_broker_that_does_not_announce_the_message_is_not_sent_it() -> None:
    """One of an earlier release would close the connection, and its markers with it."""
    rig = await told_rig()
    rig.peer().announced = set()
    assert not rig.routes.expect(expected())
    await turns()
    assert rig.peer().requests == []


async def test_partition_without_a_leader_or_a_connection_asks() -> None:
    rig = await told_rig()
    for topic in ("gone", "b"):
        assert not rig.routes.expect(expected(topic=topic))
    assert list(rig.cluster.peers) == [OTHER]


async def test_message_without_a_connection_is_dropped() -> None:
    peer = Peer(lambda: None, None, client_id="broker-1")  # type: ignore[arg-type]
    assert not peer.tells(expect_producers.API)
    peer.tell(expect_producers.API, ExpectProducersRequest(producers=[]), version=0)


test_missing_check_is_found = hunt(globals())
