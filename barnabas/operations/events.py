"""The events that the brokers of a cluster keep, merged in the order of time."""

import asyncio
import json
from bisect import insort
from operator import attrgetter
from typing import Any, Final, NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.operations.answers.cluster import Event
from barnabas.operations.broker_http import Endpoints
from barnabas.protocol.errors import KafkaError

MOST_EVENTS: Final = 5_000
"""The latest ones; a broker keeps 256 of each kind."""
_ORDER: Final = attrgetter("time_ms", "broker", "sequence")


class _Position(NamedTuple):
    """The run of a broker, and the last event of it that was read."""

    run: str
    sequence: int


class _Answer(NamedTuple):
    """The response of a broker."""

    run: str
    dropped: int
    events: list[Event]


class ClusterEvents:
    """The events of all brokers of a cluster, read again and again."""

    def __init__(self, cluster: Cluster, endpoints: Endpoints) -> None:
        self._cluster = cluster
        self._endpoints = endpoints
        self._positions: dict[int, _Position] = {}
        self.problems: dict[int, str] = {}
        """The reason why the last reading lacks events, by broker."""

    async def read(self) -> list[Event]:
        """Return the events since the last reading in the order of time.

        Raises KafkaError and BrokerUnreachable if no broker returns the list of brokers.
        """
        self.problems = {}
        await self._cluster.refresh(())
        brokers = {*self._cluster.nodes, *self._endpoints.known}
        found = await asyncio.gather(*map(self._read, sorted(brokers)))
        return sorted((event for each in found for event in each), key=_ORDER)

    async def _read(self, broker: int) -> list[Event]:
        try:
            return await self._later(broker)
        except (KafkaError, BrokerUnreachable, OSError, TimeoutError) as error:
            self.problems[broker] = str(error) or type(error).__name__
            return []

    async def _later(self, broker: int) -> list[Event]:
        known = self._positions.get(broker)
        after = 0 if known is None else known.sequence
        answer = await self._ask(broker, after)
        if known is not None and answer.run != known.run:
            known, answer = None, await self._ask(broker, 0)
        if known is not None and answer.dropped:
            self.problems[broker] = f"{answer.dropped} events came and went since the last reading"
        last = 0 if known is None else known.sequence
        if answer.events:
            last = answer.events[-1].sequence
        self._positions[broker] = _Position(answer.run, last)
        return answer.events

    async def _ask(self, broker: int, after: int) -> _Answer:
        body = await self._endpoints.get(broker, f"/events?after={after}")
        try:
            return _answer(broker, json.loads(body))
        except (LookupError, TypeError, ValueError) as error:
            raise OSError("its /events has another format") from error


def _answer(broker: int, answer: dict[str, Any]) -> _Answer:
    events = [
        Event(
            int(each["time_ms"]),
            broker,
            int(each["sequence"]),
            str(each["kind"]),
            dict(each["subject"]),
            str(each["text"]),
        )
        for each in answer["events"]
    ]
    return _Answer(str(answer["run"]), int(answer["dropped"]), events)


class Timeline:
    """The latest events of a cluster, including those of brokers that have ended since."""

    def __init__(self, cluster: Cluster, endpoints: Endpoints) -> None:
        self._source = ClusterEvents(cluster, endpoints)
        self._events: list[Event] = []

    async def read(self) -> "Timeline":
        """Read what is new. Raises KafkaError and BrokerUnreachable."""
        for each in await self._source.read():
            insort(self._events, each, key=attrgetter("time_ms"))
        del self._events[:-MOST_EVENTS]
        return self

    @property
    def problems(self) -> dict[int, str]:
        """Why events of a broker are missing, as of the last reading."""
        return self._source.problems

    def latest(self, kind: str, search: str, since_ms: int, until_ms: int) -> list[Event]:
        """Return events of a time, the latest first: of a kind, and with a text in the subject; ""
        is any."""
        wanted = search.lower()
        return [
            each
            for each in reversed(self._events)
            if kind in ("", each.kind)
            and since_ms <= each.time_ms <= until_ms
            and any(wanted in str(value).lower() for value in each.subject.values())
        ]

    def levers(self) -> list[Event]:
        """Return the events of levers on requests that were set and not released since."""
        found: dict[str | int, Event] = {}
        for each in self._events:
            lever = each.subject.get("lever")
            if lever is not None and each.kind == "fault_set":
                found[lever] = each
            elif lever is not None and each.kind == "fault_healed":
                found.pop(lever, None)
        return list(found.values())

    def kinds(self) -> list[str]:
        """Return the kinds of the events."""
        return sorted({each.kind for each in self._events})
