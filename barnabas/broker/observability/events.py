"""The latest events of a broker, by kind, which its HTTP endpoint serves at /events.

They are in memory, bounded, and of this run only. An event is also a line of the log:

    events.add(_log, ISR_CHANGED, topic=topic, partition=index, before=[1, 2], now=[1])
"""

import json
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from heapq import merge
from typing import Final, NamedTuple

from barnabas.broker.observability.logging import EventLogger
from barnabas.coordinator.ports import Clock
from barnabas.protocol.topic_partition import TopicPartition

MOST_EVENTS: Final = 256
"""Events of a kind. Each kind has its own limit, so that many rebalances drop no election."""
MOST_BYTES: Final = 65_536
"""Bytes of the events of a kind, as they are served."""
FEW: Final = 20
"""Events of a kind by one decision, which may concern all partitions; the rest is one event."""
LONGEST_NAME: Final = 249
"""The letters that are kept of a name that clients choose: those of a topic."""
LONGEST_TEXT: Final = 500
"""The letters that are kept of a text."""
_INTERNAL: Final = "__"
"""The beginning of the names of internal topics."""
SUBJECTS: Final = ("topic", "partition", "group", "transactional_id", "broker", "lever")
"""The values that say what an event is about. One without any is about its broker."""


class EventKind(NamedTuple):
    """A kind of event."""

    name: str
    text: str
    """The beginning of the text, and the event of the log line."""
    meaning: str
    """The event and its values, for operators."""
    level: int = logging.INFO


_DEBUG, _WARNING = logging.DEBUG, logging.WARNING
BROKER_STARTED = EventKind(
    "broker_started",
    "broker started",
    "A broker serves clients; `last_run` says how its run before ended.",
)
BROKER_STOPPING = EventKind(
    "broker_stopping",
    "broker stopping",
    "A broker begins to stop. Its events end with its process.",
    _DEBUG,
)
CONTROLLER_ELECTED = EventKind(
    "controller_elected",
    "controller elected",
    "This broker is controller from `epoch` on.",
)
CONTROLLER_RESIGNED = EventKind(
    "controller_resigned",
    "controller resigned",
    "This broker no longer is controller: another one is, or it lost the metadata store.",
    _WARNING,
)
BROKERS_CHANGED = EventKind(
    "brokers_changed",
    "brokers changed",
    "The controller sees other registrations; a broker that restarted is in `gone` and `new`.",
)
LEADER_ELECTED = EventKind(
    "leader_elected",
    "leader elected",
    "A partition has another leader, or one again: `leader` in place of `before`.",
)
UNCLEAN_ELECTION = EventKind(
    "unclean_election",
    "unclean election",
    "The new leader may lack acknowledged records.",
    _WARNING,
)
LEADER_LOST = EventKind(
    "leader_lost",
    "no leader",
    "A partition has no leader: no replica that may lead it is alive.",
    _WARNING,
)
ISR_CHANGED = EventKind(
    "isr_changed",
    "ISR changed",
    "The in-sync replicas of a partition under the same leader, `before` and `now`.",
)
REASSIGNMENT_STARTED = EventKind(
    "reassignment_started",
    "reassignment started",
    "Replicas are added to a partition, or removed.",
)
REASSIGNMENT_FINISHED = EventKind(
    "reassignment_finished",
    "reassignment finished",
    "All replicas of the target were in sync, and the others are deleted.",
)
REASSIGNMENT_CANCELLED = EventKind(
    "reassignment_cancelled",
    "reassignment cancelled",
    "A partition returns to the replicas from before its reassignment.",
)
STORE_SILENT = EventKind(
    "store_silent",
    "metadata store is silent",
    "Nothing was heard of the metadata store for so long that the session may have ended.",
    _WARNING,
)
STORE_BACK = EventKind(
    "store_back",
    "metadata store answers again",
    "The metadata store answers again.",
    _WARNING,
)
SESSION_LOST = EventKind(
    "session_lost",
    "registration lost",
    "The session with the metadata store has ended, and the broker's registration with it.",
    _WARNING,
)
SESSION_BACK = EventKind(
    "session_back",
    "registered again",
    "The broker has a new session, and is registered in it.",
)
PROCESS_PAUSED = EventKind(
    "process_paused",
    "the process was paused",
    "The process did not run for longer than its session allows.",
    _WARNING,
)
GROUP_REBALANCE = EventKind(
    "group_rebalance",
    "group rebalances",
    "A group begins a rebalance (`classic`) or its next epoch (`consumer`), and for which reason.",
    _DEBUG,
)
TRANSACTION_TIMED_OUT = EventKind(
    "transaction_timed_out",
    "transaction timed out",
    "The coordinator aborts a transaction that was open for longer than its timeout.",
)
TRANSACTION_FENCED = EventKind(
    "transaction_fenced",
    "transaction fenced",
    "The coordinator aborts an open transaction, because InitProducerId asked for its producer id "
    "from the host `by`.",
    _DEBUG,
)
FAULT_SET = EventKind(
    "fault_set",
    "fault set",
    "A test has set a fault at this broker (`--faults`, `barnabas.testing`).",
    _WARNING,
)
FAULT_HEALED = EventKind(
    "fault_healed",
    "fault healed",
    "A fault of a test is gone.",
    _WARNING,
)
KINDS: Final = tuple(each for each in list(globals().values()) if isinstance(each, EventKind))
"""Every kind, in the order of the documentation."""


class EventLog:
    """The latest events of one run of a broker."""

    def __init__(self, broker_id: int, clock: Clock) -> None:
        self._broker_id = broker_id
        self._now_ms = clock.now_ms
        self._run = str(clock.now_ms())
        self._sequence = 0
        self._latest: dict[str, _Latest] = {}

    def add(self, log: EventLogger, kind: EventKind, **values: object) -> None:
        """Add an event of now, and log it. `values` has its subjects too."""
        log.log(kind.level, kind.text, **values)
        self._sequence += 1
        latest = self._latest.get(kind.name)
        if latest is None:
            latest = self._latest[kind.name] = _Latest()
        told = {name: _kept(each) for name, each in values.items()}
        latest.unread.append((self._sequence, self._now_ms(), kind, told))

    @contextmanager
    def of_partitions(self, log: EventLogger) -> Iterator[Callable[..., None]]:
        """Return a function like `add`, for the partitions of one decision: of each kind it adds
        the first FEW, those of internal topics last, and at the end how many more there were."""
        seen: Counter[EventKind] = Counter()
        internal: list[tuple[EventKind, TopicPartition, dict[str, object]]] = []

        def add(kind: EventKind, at: TopicPartition, **values: object) -> None:
            if at.topic.startswith(_INTERNAL):
                internal.append((kind, at, values))
            else:
                put(kind, at, values)

        def put(kind: EventKind, at: TopicPartition, values: dict[str, object]) -> None:
            seen[kind] += 1
            if seen[kind] <= FEW:
                self.add(log, kind, topic=at.topic, partition=at.partition, **values)

        yield add
        for each in internal:
            put(*each)
        for kind, count in seen.items():
            if count > FEW:
                self.add(log, kind, more_partitions=count - FEW)

    def after(self, sequence: int) -> bytes:
        """Return the events after a sequence number as JSON, with how many of them are gone."""
        for each in self._latest.values():
            each.read(self._encoded)
        kept: Iterable[_Event] = merge(*(each.events for each in self._latest.values()))
        events = [event for number, event in kept if number > sequence]
        head = {
            "broker": self._broker_id,
            "run": self._run,
            "dropped": self._sequence - min(sequence, self._sequence) - len(events),
        }
        return b'%s, "events": [%s]}\n' % (json.dumps(head).encode()[:-1], b",\n".join(events))

    def _encoded(self, told: "_Told") -> bytes:
        sequence, time_ms, kind, values = told
        subject = {name: _clipped(values[name]) for name in SUBJECTS if name in values}
        rest = ", ".join(f"{name} {each}" for name, each in values.items() if name not in SUBJECTS)
        event = {
            "sequence": sequence,
            "time_ms": time_ms,
            "kind": kind.name,
            "subject": subject or {"broker": self._broker_id},
            "text": _clipped(f"{kind.text}: {rest}" if rest else kind.text, LONGEST_TEXT),
        }
        return json.dumps(event).encode()


_Told = tuple[int, int, EventKind, dict[str, object]]
"""Sequence number, time in ms, kind, and values that do not change."""
_Event = tuple[int, bytes]
"""Sequence number, and JSON."""


class _Latest:
    """The latest events of a kind. Their JSON is made when they are read: groups rebalance by the
    thousand."""

    __slots__ = ("_bytes", "events", "unread")

    def __init__(self) -> None:
        self.unread: deque[_Told] = deque(maxlen=MOST_EVENTS)
        self.events: deque[_Event] = deque()
        self._bytes = 0

    def read(self, encoded: Callable[[_Told], bytes]) -> None:
        """Add the unread events to `events`, which has the latest of both."""
        while self.unread:
            told = self.unread.popleft()
            self.events.append((told[0], encoded(told)))
            self._bytes += len(self.events[-1][1])
            while len(self.events) > MOST_EVENTS or self._bytes > MOST_BYTES:
                _, gone = self.events.popleft()
                self._bytes -= len(gone)


def _kept(value: object) -> object:
    """Return a value that does not change, of a bounded length."""
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    return value if isinstance(value, int | float | None) else f"{value}"[:LONGEST_TEXT]


def _clipped(value: object, length: int = LONGEST_NAME) -> object:
    """Return a value with a bounded length: clients choose names."""
    if isinstance(value, str) and len(value) > length:
        return value[: length - 1] + "…"
    return value
