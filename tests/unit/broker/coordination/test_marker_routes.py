"""Markers go to whoever leads, many with one request, and wait apart where nobody does."""

from collections.abc import Iterable
from typing import Any

import pytest

from barnabas.broker.coordination.marker_line import MARKERS_PER_REQUEST
from barnabas.broker.coordination.marker_routes import MarkerRoutes
from barnabas.broker.coordination.marker_writer import TxnMarker
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import write_txn_markers as words
from barnabas.protocol.topic_partition import TopicPartition
from tests.unit.broker.coordination.fake_peer import FakeCluster, FakePeer, turns

US, OTHER, THIRD = 1, 2, 3
A, B, C = ("a", 0), ("a", 1), ("b", 0)


class Errand:
    """A marker of producer `producer_id`, and what it is told."""

    def __init__(self, place: TopicPartition, producer_id: int = 7, version: int = 2) -> None:
        self.place = place
        self.marker = TxnMarker(producer_id, 4, 9, True, version)
        self.wanted = True
        self.told: list[str] = []

    def done(self, code: ErrorCode) -> None:
        self.told.append(code.name)

    def again(self) -> None:
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

    def write(self, topic: str, index: int, _marker: TxnMarker, done: Any) -> None:
        """As the writer of this broker."""
        self.written.append((topic, index))
        done(ErrorCode.NONE)

    async def carry(self, *errands: Errand) -> None:
        for errand in errands:
            self.routes.carry(errand)
        await turns()

    def peer(self, broker_id: int = OTHER) -> FakePeer:
        return self.cluster.peers[broker_id]


@pytest.fixture
async def rig() -> Rig:
    return Rig()


def answer(codes: dict[tuple[int, TopicPartition], ErrorCode]) -> Any:
    """One entry for each marker, in any order."""
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


def fine(errands: Iterable[Errand]) -> Any:
    return answer({(each.marker.producer_id, each.place): ErrorCode.NONE for each in errands})


async def test_what_this_broker_leads_is_written_here_at_once(rig: Rig) -> None:
    rig.cluster.leaders[A] = US
    errand = Errand(A)
    rig.routes.carry(errand)
    assert (rig.written, errand.told) == ([A], ["NONE"])
    assert rig.cluster.peers == {}


async def test_the_own_log_says_so_where_nobody_has_heard_of_the_partition(rig: Rig) -> None:
    await rig.carry(Errand(("gone", 0)))
    assert rig.written == [("gone", 0)]


async def test_markers_for_one_leader_go_together_and_say_by_which_protocol(rig: Rig) -> None:
    """KIP-1228: the version of the transaction travels with the marker."""
    await rig.carry(Errand(A), Errand(B), Errand(A, 8, version=1), Errand(C))
    assert rig.peer().sent == [(words.API, 2)]
    newer, older = rig.peer().requests[0].markers
    assert (newer.producer_id, newer.producer_epoch, newer.coordinator_epoch) == (7, 4, 9)
    assert (newer.transaction_version, older.transaction_version) == (2, 1)
    assert newer.transaction_result
    assert [(each.name, each.partition_indexes) for each in newer.topics] == [("a", [0, 1])]
    assert [(each.name, each.partition_indexes) for each in older.topics] == [("a", [0])]
    assert rig.peer(THIRD).requests[0].markers[0].topics[0].name == "b"


async def test_a_fault_in_one_outcome_keeps_no_other_from_its_own(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(Errand):
        def done(self, code: ErrorCode) -> None:
            raise ValueError(f"damaged by {code.name}")

    errands = [Faulty(A), Errand(B), Errand(A, 8)]
    await rig.carry(*errands)
    rig.peer().answer(fine(errands))
    await turns()
    assert [each.told for each in errands] == [[], ["NONE"], ["NONE"]]
    assert "damaged" in caplog.text
    later = Errand(B, 9)
    await rig.carry(later)
    assert len(rig.peer().requests) == 2


async def test_each_hears_its_own_outcome_whatever_the_order_of_the_answer(rig: Rig) -> None:
    first, second, third = Errand(A), Errand(B), Errand(A, 8)
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


async def test_one_request_is_on_its_way_and_all_that_came_meanwhile_goes_with_the_next(
    rig: Rig,
) -> None:
    first = Errand(A)
    later = [Errand(A, number) for number in range(10, 40)]
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


async def test_a_request_has_a_bound(rig: Rig) -> None:
    many = [Errand(A, number) for number in range(2 * MARKERS_PER_REQUEST + 1)]
    await rig.carry(*many)
    for _ in range(3):
        rig.peer().answer(fine(many))
        await turns()
    sizes = [len(each.markers) for each in rig.peer().requests]
    assert sizes == [MARKERS_PER_REQUEST, MARKERS_PER_REQUEST, 1]
    assert all(each.told == ["NONE"] for each in many)


async def test_a_broken_connection_is_an_unknown_outcome_for_what_was_on_its_way_alone(
    rig: Rig,
) -> None:
    lost, waiting = Errand(A), Errand(B)
    await rig.carry(lost)
    await rig.carry(waiting)
    rig.peer().break_()
    await turns()
    assert (lost.told, waiting.told) == (["NETWORK_EXCEPTION"], [])
    rig.peer().answer(fine([waiting]))
    await turns()
    assert waiting.told == ["NONE"]


async def test_what_an_answer_leaves_out_is_unknown(rig: Rig) -> None:
    first, second = Errand(A), Errand(B)
    await rig.carry(first, second)
    rig.peer().answer(fine([second]))
    await turns()
    assert (first.told, second.told) == (["NETWORK_EXCEPTION"], ["NONE"])


async def test_what_nobody_wants_any_more_is_not_sent(rig: Rig) -> None:
    """Its coordinator has resigned: the next one sends it, with its own epoch."""
    first, second = Errand(A), Errand(B)
    await rig.carry(first)
    await rig.carry(second)
    second.wanted = False
    rig.peer().answer(fine([first]))
    await turns()
    assert len(rig.peer().requests) == 1
    assert second.told == []


async def test_a_partition_without_a_leader_holds_up_nobody_else(rig: Rig) -> None:
    rig.cluster.leaders[A] = -1
    waiting, other = Errand(A), Errand(B)
    await rig.carry(waiting, other)
    rig.peer().answer(fine([other]))
    await turns()
    assert (waiting.told, other.told, rig.routes.leaderless) == ([], ["NONE"], 1)
    rig.cluster.changed()
    assert (waiting.told, rig.routes.leaderless) == ([], 1)
    rig.cluster.leaders[A] = THIRD
    rig.cluster.changed()
    assert (waiting.told, rig.routes.leaderless) == (["again"], 0)


async def test_a_leader_that_is_not_alive_is_none(rig: Rig) -> None:
    rig.cluster.dies(OTHER)
    errand = Errand(A)
    await rig.carry(errand)
    assert (errand.told, rig.routes.leaderless, rig.cluster.peers) == ([], 1, {})


async def test_a_partition_that_is_gone_waits_for_no_leader(rig: Rig) -> None:
    rig.cluster.leaders[A] = -1
    errand = Errand(A)
    await rig.carry(errand)
    del rig.cluster.leaders[A]
    rig.cluster.changed()
    assert errand.told == ["again"]


async def test_what_waits_for_a_leader_is_forgotten_when_nobody_wants_it(rig: Rig) -> None:
    rig.cluster.leaders[A] = -1
    first, second = Errand(A), Errand(A, 8)
    await rig.carry(first, second)
    first.wanted = False
    rig.routes.forget_unwanted()
    assert rig.routes.leaderless == 1
    second.wanted = False
    rig.routes.forget_unwanted()
    assert rig.routes.leaderless == 0


async def test_the_answer_of_a_broker_that_died_is_not_waited_for(rig: Rig) -> None:
    """Or the markers of a paused broker would wait until the request times out."""
    errand = Errand(A)
    await rig.carry(errand)
    rig.cluster.dies(OTHER)
    await turns()
    assert errand.told == ["NETWORK_EXCEPTION"]


async def test_who_stops_tells_everybody(rig: Rig) -> None:
    first, second = Errand(A), Errand(B)
    await rig.carry(first)
    await rig.carry(second)
    await rig.routes.close()
    await turns()
    assert (first.told, second.told) == (["NETWORK_EXCEPTION"], ["NETWORK_EXCEPTION"])
    assert rig.peer().under_way == 0
