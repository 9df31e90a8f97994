"""The judgement of answers while the values change on which they depend.

A change holds on a broker HOLDS_S after it was acknowledged, or after the broker has reached its
metadata store again. Before that the answer may tell the old value. From the request of the change
on it may tell the new one. A value that does not change stays in force, whatever happens to the
store.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")
HOLDS_S: Final = 1.0
"""The time in s after which a change holds on every broker that reaches the store."""
MOST_SHOWN: Final = 20


@dataclass
class Change(Generic[T]):
    """A new value; the times in s of the monotonic clock when it was asked for and acknowledged."""

    value: T
    asked: float = -math.inf
    done: float = -math.inf


class Timeline(Generic[T]):
    """A value with its changes."""

    def __init__(self, name: str, value: T) -> None:
        self.name = name
        self.changes = [Change(value)]

    @property
    def value(self) -> T:
        """The value that was asked for last."""
        return self.changes[-1].value

    @property
    def previous(self) -> T:
        """The value before it; the same if it never changed."""
        return self.changes[max(-2, -len(self.changes))].value

    def ask(self, value: T) -> Change[T]:
        """Begin a change, which is about to be asked for; the caller sets `done`."""
        self.changes.append(Change(value, time.monotonic(), math.inf))
        return self.changes[-1]

    def possible(self, asked: float, told: float, holds: Callable[[float], float]) -> list[T]:
        """Return the values that an answer may tell.

        Its request was sent at `asked`, and it came at `told`. `holds` returns the time from which
        a change holds that was acknowledged at a time.
        """
        ends = [holds(change.done) for change in self.changes[1:]] + [math.inf]
        return [
            change.value
            for change, end in zip(self.changes, ends, strict=True)
            if change.asked <= told and asked <= end
        ]


@dataclass
class Away:
    """The time in which brokers do not reach the metadata store."""

    brokers: tuple[int, ...]
    since: float
    until: float = math.inf


class Judge:
    """The answers that were judged, and the wrong ones."""

    def __init__(self) -> None:
        self._away: list[Away] = []
        self.faults = 0
        """The faults that act at present."""
        self.judged = 0
        """The answers for which there was one value."""
        self.judged_in_faults = 0
        self.slowest_s = 0.0
        """The longest time until an answer: a machine that is busy delays changes too."""
        self.wrong: list[str] = []
        self.wrongs = 0

    def away(self, *brokers: int) -> Away:
        """Begin a time in which brokers do not reach the store; the caller ends it."""
        self._away.append(Away(brokers, time.monotonic()))
        return self._away[-1]

    def holds(self, broker: int, done: float) -> float:
        """Return the time from which a change holds on a broker."""
        at = done + HOLDS_S
        for each in self._away:
            if broker in each.brokers and each.since <= at <= each.until + HOLDS_S:
                at = each.until + HOLDS_S
        return at

    def hear(
        self,
        timeline: Timeline[T],
        broker: int,
        asked: float,
        fits: Callable[[T], bool],
        said: str,
    ) -> None:
        """Judge the answer that has just come; `fits` returns whether it is right for a value."""
        told = time.monotonic()
        self.slowest_s = max(self.slowest_s, told - asked)
        possible = timeline.possible(asked, told, lambda done: self.holds(broker, done))
        if len(set(possible)) == 1:
            self.judged += 1
            self.judged_in_faults += bool(self.faults)
        if not any(map(fits, possible)):
            late = asked - self.holds(broker, timeline.changes[-1].done)
            self.found(f"broker {broker}, {timeline.name}: {said}, {late:.2f} s after it holds")

    def found(self, text: str) -> None:
        """Note something that is wrong."""
        self.wrongs += 1
        if len(self.wrong) < MOST_SHOWN:
            self.wrong.append(text)
