"""Consumer groups of KIP-848: the part `groups` of `beside_kafka`.

Members are raw heartbeats over a few connections to the coordinators of their groups, from another
process. A member acknowledges an assignment at once. Until it has its share it sends a heartbeat
every 100 ms, so that the time until all have theirs is that of the coordinator and not that of the
heartbeat interval. Meanwhile another client appends one record after another. Members come as fast
as they are answered, and once at a rate: then they send a heartbeat each second until they have
their shares.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count, cycle, islice
from struct import Struct
from typing import Final, NamedTuple, Self

from barnabas.protocol.codec import decode
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.header import decode_response_header
from barnabas.protocol.messages.consumer_group_heartbeat import (
    API,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from benchmarks import raw, requests
from benchmarks.child import Child, tell, told
from benchmarks.measures import Cost, Faulty, Figures, Round
from benchmarks.systems import System, create_topics
from tests.support import neighbour
from tests.support.neighbour import Neighbour

CONNECTIONS: Final = 16
"""One heartbeat is in flight on each."""
PAIR: Final = 2
"""The members of each group, where there are many groups."""
ALONE: Final = "Produce of one record, beside no joins"
UNCHANGED: Final = "heartbeat that changes nothing"
_VERSION: Final = 1
PACE: Final = 200.0
"""The members that come in a second, if not as fast as they are answered."""
_AGAIN_S, _PACED_AGAIN_S = 0.1, 1.0
"""The pause of a member that waits for its share."""
_IDLE_S: Final = 0.002
"""The pause of a connection for which no member is left."""
_CALM_S: Final = 3.0
_LEAVE: Final = -1
_EPOCH: Final = Struct(">i")
_EPOCH_AT: Final = -15
"""The position of the epoch in a heartbeat that tells nothing else, from its end."""
_NO_ASSIGNMENT: Final = b"\xff\0"
"""The end of an answer without an assignment; the epoch and the interval stand before it."""
_ANSWERED_EPOCH_AT: Final = -10
_ERROR_AT: Final = slice(9, 11)
_RETRIABLE: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Shape(NamedTuple):
    """Groups, each with as many members as its topic has partitions."""

    groups: int
    members: int
    pace: float = 0.0
    """The members that come in a second; 0 if they come as fast as they are answered."""

    @property
    def name(self) -> str:
        pace = f", {self.pace:g} a second" if self.pace else ""
        if self.groups == 1:
            return f"{self.members:,} members in one group{pace}"
        return f"{self.groups:,} groups of {self.members} members{pace}"

    @property
    def beside(self) -> str:
        """The name of the measurement of another client meanwhile."""
        return f"Produce of one record, beside {self.name}"

    @property
    def topic(self) -> str:
        return f"groups-{self.members}"


class Member:
    """A member of a group with a share of one partition."""

    def __init__(self, group_id: str, member_id: str, topic: str, port: int) -> None:
        """`port` is that of the coordinator."""
        self._group_id, self._member_id, self.port = group_id, member_id, port
        join = self._request(rebalance_timeout_ms=300_000, subscribed_topic_names=[topic])
        join.topic_partitions = []
        self._next: bytes | None = raw.frame(API, _VERSION, join)
        """A heartbeat that tells something, to be sent once."""
        self._unchanged = bytearray(raw.frame(API, _VERSION, self._request()))
        self.epoch = 0
        self.owned: list[tuple[bytes, int]] = []

    def _request(self, **told: object) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self._member_id, member_epoch=0
        )
        for name, value in told.items():
            setattr(request, name, value)
        return request

    @property
    def has_share(self) -> bool:
        """Whether it has acknowledged that it has its share."""
        return self._next is None and len(self.owned) == 1

    @property
    def tells_something(self) -> bool:
        return self._next is not None

    def heartbeat(self) -> bytes:
        """Return the next heartbeat."""
        return self._in_epoch(self.epoch) if self._next is None else self._next

    def leave(self) -> bytes:
        """Return the last heartbeat."""
        return self._in_epoch(_LEAVE)

    def _in_epoch(self, epoch: int) -> bytes:
        _EPOCH.pack_into(self._unchanged, len(self._unchanged) + _EPOCH_AT, epoch)
        return bytes(self._unchanged)

    def takes(self, answer: bytes) -> bool:
        """Take an answer, whose assignment is to be acknowledged; return False if the request is to
        be sent again. Raises KafkaError."""
        if answer[_ERROR_AT] == b"\0\0" and answer.endswith(_NO_ASSIGNMENT):
            self._next = None
            self.epoch = _EPOCH.unpack_from(answer, len(answer) + _ANSWERED_EPOCH_AT)[0]
            return True
        try:
            response = decoded(answer)
        except KafkaError as error:
            if error.code in _RETRIABLE:
                return False
            raise
        self._next = None
        self.epoch = response.member_epoch
        if response.assignment is not None:
            owned = response.assignment.topic_partitions
            self.owned = [(each.topic_id, index) for each in owned for index in each.partitions]
            request = self._request(member_epoch=self.epoch, topic_partitions=owned)
            self._next = raw.frame(API, _VERSION, request)
        return True


def decoded(answer: bytes) -> ConsumerGroupHeartbeatResponse:
    """Return the response to a heartbeat. Raises KafkaError if it is an error."""
    _, body = decode_response_header(API.key, _VERSION, answer)
    response: ConsumerGroupHeartbeatResponse = decode(API.response, _VERSION, answer, body)
    if response.error_code:
        raise KafkaError(ErrorCode.of(response.error_code), response.error_message or "")
    return response


class Fleet:
    """The members of new groups, and their connections."""

    def __init__(self, port: int, shape: Shape) -> None:
        began = time.time_ns()
        names = [f"g-{began}-{group}" for group in range(shape.groups)]
        with raw.connect(port) as client:
            ports = raw.coordinator_ports(client, names, raw.GROUP)
        self.groups = [
            [Member(name, f"{at:022}", shape.topic, port) for at in range(shape.members)]
            for name, port in ports.items()
        ]
        # The first members of all groups come first, then the second ones.
        self.members = [each for some in zip(*self.groups, strict=True) for each in some]
        self._pace = shape.pace
        self.heartbeats = 0
        few = min(CONNECTIONS, len(self.members))
        self.clients = [raw.connect(each) for each in islice(cycle({*ports.values()}), few)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.clients:
            each.close()

    def assign(self) -> float:
        """Let the members join; return the seconds until all have acknowledged their shares."""
        began = time.perf_counter()
        if self._pace:
            # While members come, a share of one partition may not be the last one.
            self._drive(lambda _: all(each.has_share for each in self.members), self._pace)
        else:
            self._drive(lambda each: each.has_share)
        seconds = time.perf_counter() - began
        for group in self.groups:
            if len({partition for each in group for partition in each.owned}) < len(group):
                raise RuntimeError("two members of a group have the same partition")
        return seconds

    def settle(self) -> None:
        """Send heartbeats until all members of a group are in its last epoch."""
        last = {
            id(each): max(each.epoch for each in group) for group in self.groups for each in group
        }
        self._drive(lambda each: not each.tells_something and each.epoch >= last[id(each)])

    def leave(self) -> None:
        """Let all members leave."""
        for port, client in {each.port: each for each in self.clients}.items():
            leaving = (each.leave() for each in self.members if each.port == port)
            client.stream(leaving, window=1)

    def _drive(self, is_done: Callable[[Member], bool], pace: float = 0.0) -> None:
        """Send heartbeats of each member until it is done; `pace` members begin in a second."""
        began, order = time.monotonic(), count()
        heaps: dict[int, list[tuple[float, int, Member]]] = defaultdict(list)
        """The members of each coordinator by the time of their next heartbeat."""
        for number, each in enumerate(self.members):
            due = began + number / pace if pace else 0.0
            heappush(heaps[each.port], (due, next(order), each))
        again_s = _PACED_AGAIN_S if pace else _AGAIN_S
        held = Counter[int]()

        def heartbeats(client: raw.Client) -> raw.Talk:
            waiting = heaps[client.port]
            while waiting or held[client.port]:
                if not waiting:
                    # Other connections have the last members, and may give them back.
                    yield time.monotonic() + _IDLE_S
                    continue
                due, _, member = heappop(waiting)
                held[client.port] += 1
                # No member becomes due before this one: what an answer adds is due later.
                if due > time.monotonic():
                    yield due
                self.heartbeats += 1
                answer = yield client, member.heartbeat()
                held[client.port] -= 1
                if member.takes(answer) and member.tells_something:
                    # Before those that have not joined yet.
                    heappush(waiting, (-1.0, next(order), member))
                elif not is_done(member):
                    heappush(waiting, (time.monotonic() + again_s, next(order), member))

        raw.converse(map(heartbeats, self.clients))


def prepare(system: System, shapes: Iterable[Shape]) -> None:
    """Create the topics, and wait for a coordinator."""
    pair = Shape(1, PAIR)
    topics = {each.topic: each.members for each in (*shapes, pair)}
    create_topics(system.servers, {neighbour.TOPIC: 1, **topics})
    with Fleet(system.port, pair) as fleet:
        fleet.assign()
        fleet.leave()


def assign(system: System, shape: Shape) -> Round:
    """Measure the time until all members of new groups have their shares, and another client's
    requests with them; those without, too, if the members come at a pace."""
    found: Round = {}
    joining = Child("consumer_groups.join", port=system.port, **shape._asdict())
    with (
        joining as members,
        system.leader(neighbour.TOPIC) as leader,
        Neighbour(leader.port) as other,
    ):
        members.hear()
        if shape.pace:
            found[ALONE] = {"p99_ms": other.p99_ms_of_next(_CALM_S)}
        began = time.monotonic()
        with Cost(*system.pids) as cost:
            members.tell()
            figures: Figures = members.hear()
        p99_ms = other.p99_ms(began, time.monotonic())
        members.tell()
        members.hear()
    if other.errors:
        raise Faulty(f"{system.name} did not take a record: {other.errors[0]}")
    figures["cpu_seconds"] = cost.cpu
    return {shape.name: figures, shape.beside: {"p99_ms": p99_ms}, **found}


def join(**shape: float) -> None:
    """Let members join when it is told, and leave at the end, in a process of its own."""
    with Fleet(shape.pop("port"), Shape(**shape)) as fleet:
        tell("ready")
        told()
        tell({"seconds": fleet.assign(), "heartbeats": fleet.heartbeats})
        told()
        fleet.leave()


def unchanged(system: System, shape: Shape, requested: int) -> Round:
    """Measure heartbeats of members that have their shares."""
    with Fleet(system.port, shape) as fleet:
        fleet.assign()
        fleet.settle()
        client = fleet.clients[0]
        frames = [each.heartbeat() for each in fleet.members]
        beats = islice(cycle(frames), requested)
        figures = requests.measured(system, client, beats, requested, requests.WINDOW)
        if decoded(client.last_answer).assignment is not None:
            raise RuntimeError(f"{system.name} has changed an assignment")
        fleet.leave()
    return {UNCHANGED: figures}


def shapes(members: int, groups: int) -> tuple[Shape, Shape, Shape]:
    """Return the shapes of one group with many members, of many groups, and of one group whose
    members come at a pace."""
    return Shape(1, members), Shape(groups, PAIR), Shape(1, members, PACE)
