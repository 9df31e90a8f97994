"""ListTransactions: by state, producer, duration and pattern."""

from typing import Any

from barnabas.protocol.messages.list_transactions import API, ListTransactionsRequest
from tests.referee import given
from tests.referee.scenario import LEVELS, Peer, Scenarios
from tests.referee.transactions import producer, worn

scenario = Scenarios(API, LEVELS)

DURATIONS, PATTERNS = 1, 2
"""The versions that introduced them."""
STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
    *("Dead", "PrepareEpochFence"),
)
HOUR_MS = 3_600_000


def ask(s: Peer, *states: str, producers: tuple[int, ...] = (), **options: Any) -> None:
    """Ask, and record only the scenario's own transactional ids."""

    def mine(answer: Any) -> Any:
        answer.transaction_states = [
            each
            for each in answer.transaction_states
            if each.transactional_id.startswith(s.name(""))
        ]
        return answer

    request = ListTransactionsRequest(
        state_filters=list(states), producer_id_filters=list(producers), **options
    )
    s.ask(request, pick=mine)


@scenario
def all_of_them(s: Peer) -> None:
    to, x = given.topic(s), producer(s)
    producer(s, "y")
    x.write(to)
    ask(s)
    x.finish()
    ask(s)


@scenario
def by_each_state(s: Peer) -> None:
    to = given.topic(s, partitions=2)
    producer(s, "empty")
    producer(s, "ongoing").write(to)
    producer(s, "committed").write(to).finish()
    producer(s, "aborted").write(to).finish(committed=False)
    f = given.topic(s, "f")
    producer(s, "frozen").write(f).freeze(f)
    for state in STATES:
        if not state.startswith("Prepare"):
            ask(s, state)
    ask(s, "Empty", "Ongoing")


@scenario
def transactions_being_ended(s: Peer) -> None:
    a, b = given.topic(s, "a"), given.topic(s, "b")
    producer(s).write(a).freeze(a)
    producer(s, "y").write(b).freeze(b, committed=False)
    ask(s, "PrepareCommit")
    ask(s, "PrepareAbort", "Ongoing")


@scenario
def invalid_states(s: Peer) -> None:
    producer(s)
    ask(s, "Sleeping")
    ask(s, "Empty", "Sleeping", "", "empty")


@scenario
def by_producer(s: Peer) -> None:
    x, y = producer(s), producer(s, "y")
    producer(s, "z")
    ask(s, producers=(x.id,))
    ask(s, producers=(x.id, y.id))
    ask(s, producers=(-1,))
    ask(s, producers=(x.id + 5_000_000,))
    ask(s, "Ongoing", producers=(x.id,))
    ask(s, "Empty", producers=(x.id,))


@scenario(since=DURATIONS)
def by_duration(s: Peer) -> None:
    to = given.topic(s)
    producer(s, "empty")
    producer(s, "ongoing").write(to)
    producer(s, "committed").write(to).finish()
    for duration_ms in (-1, HOUR_MS, 2**62, -(2**62)):
        ask(s, duration_filter=duration_ms)


@scenario(since=PATTERNS)
def by_pattern(s: Peer) -> None:
    producer(s)
    producer(s, "yy")
    for pattern in ("", ".*", ".*-x", ".*-y+", "x", s.name("x"), s.name("[xy]"), "nothing"):
        ask(s, transactional_id_pattern=pattern)


@scenario(since=PATTERNS)
def invalid_patterns(s: Peer) -> None:
    producer(s)
    for pattern in ("(", "[", "*", "a{2,1}"):
        ask(s, transactional_id_pattern=pattern)


@scenario(since=PATTERNS)
def by_everything(s: Peer) -> None:
    to = given.topic(s)
    x = producer(s).write(to)
    producer(s, "y")
    pattern = s.name(".")
    ask(s, "Ongoing", producers=(x.id,), transactional_id_pattern=pattern, duration_filter=-1)
    ask(s, "Ongoing", transactional_id_pattern=pattern, duration_filter=HOUR_MS)
    ask(s, "Empty", transactional_id_pattern=pattern)


@scenario(worn=True)
def worn_epochs(s: Peer) -> None:
    to, x = given.topic(s), worn(s)
    x.start().write(to).finish()
    ask(s)
    x.write(to).finish()
    ask(s)
