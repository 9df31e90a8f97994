"""ListOffsets by isolation level: the last stable offset instead of the end."""

from barnabas.protocol.messages.list_offsets import API
from tests.referee import given
from tests.referee.given import NOW, Topic, list_offsets
from tests.referee.scenario import LEVELS, Peer, Scenarios
from tests.referee.transactions import COMMITTED, UNCOMMITTED, Producer, producer

scenario = Scenarios(API, LEVELS)

ISOLATION = 2
"""The first version in which a consumer sends its isolation level."""
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
MAX_TIMESTAMPS = 7


def ask(s: Peer, to: Topic) -> None:
    points = [LATEST, EARLIEST, NOW, NOW + 1, NOW - 1]
    if s.version >= MAX_TIMESTAMPS:
        points.append(MAX_TIMESTAMP)
    for isolation in (UNCOMMITTED, COMMITTED):
        for at in points:
            s.ask(list_offsets(to.name, (0, at), isolation_level=isolation))


def begun(s: Peer) -> tuple[Topic, Producer]:
    to, x = given.topic(s), producer(s)
    given.records(s, to, b"plain", since=NOW - 10)
    return to, x.write(to, b"a", b"b")


@scenario(since=ISOLATION)
def an_open_transaction(s: Peer) -> None:
    to, _ = begun(s)
    ask(s, to)


@scenario(since=ISOLATION)
def a_committed_transaction(s: Peer) -> None:
    to, x = begun(s)
    x.finish()
    latest = [(0, LATEST)]
    s.ask(list_offsets(to.name, *latest, isolation_level=COMMITTED))
    s.ask(list_offsets(to.name, *latest, isolation_level=UNCOMMITTED))
    s.ask(list_offsets(to.name, (0, NOW), isolation_level=COMMITTED))


@scenario(since=ISOLATION)
def an_aborted_transaction(s: Peer) -> None:
    to, x = begun(s)
    x.finish(committed=False)
    s.ask(list_offsets(to.name, (0, LATEST), isolation_level=COMMITTED))
    s.ask(list_offsets(to.name, (0, NOW), isolation_level=COMMITTED))
    s.ask(list_offsets(to.name, (0, NOW), isolation_level=UNCOMMITTED))


@scenario(since=ISOLATION)
def two_open_transactions(s: Peer) -> None:
    to, x = begun(s)
    y = producer(s, "y").write(to, b"c")
    ask(s, to)
    x.finish()
    s.ask(list_offsets(to.name, (0, LATEST), isolation_level=COMMITTED))
    y.finish()
    s.ask(list_offsets(to.name, (0, LATEST), isolation_level=COMMITTED))


@scenario(since=ISOLATION)
def only_an_open_transaction(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    x.write(to)
    ask(s, to)
