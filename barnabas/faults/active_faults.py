"""The faults that are in force in a cluster: a broker that starts has them from the beginning."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple


class NodeCall(NamedTuple):
    """A method of `Node`, and its arguments: plain JSON values."""

    method: str
    arguments: dict[str, Any]


class ActiveFaults:
    """Links that are cut, levers, and the jumps of the clock, by broker."""

    def __init__(self) -> None:
        self._cuts: defaultdict[int, list[NodeCall]] = defaultdict(list)
        self._levers: dict[int, tuple[frozenset[int], NodeCall]] = {}
        self._removed: dict[int, frozenset[int]] = {}
        """The brokers that had a lever, until their counts are known."""
        self._ahead = 0.0

    def add_cut(self, broker: int, call: NodeCall) -> None:
        if call not in self._cuts[broker]:
            self._cuts[broker].append(call)

    def remove_cuts(self) -> None:
        self._cuts.clear()

    def add_lever(self, number: int, brokers: Iterable[int], call: NodeCall) -> None:
        self._levers[number] = frozenset(brokers), call

    def remove_lever(self, number: int) -> None:
        """Let brokers start without a lever. Idempotent."""
        brokers, _ = self._levers.pop(number, (frozenset[int](), None))
        if brokers:
            self._removed[number] = brokers

    def forget_lever(self, number: int) -> None:
        """Forget a lever that was removed, or that no broker has taken. Idempotent."""
        self._levers.pop(number, None)
        self._removed.pop(number, None)

    def brokers_with_lever(self, number: int) -> list[int]:
        """Return the brokers that have a lever; an empty list once it was removed."""
        brokers, _ = self._levers.get(number, (frozenset[int](), None))
        return sorted(brokers)

    def brokers_that_count(self, number: int) -> list[int]:
        """Return the brokers that know how many requests a lever has touched."""
        return self.brokers_with_lever(number) or sorted(self._removed.get(number, ()))

    def advance_clock(self, seconds: float) -> None:
        self._ahead += seconds

    def calls_before_start(self, broker: int) -> list[NodeCall]:
        """Return the calls that bring a broker into this state, to be made before it starts."""
        levers = [call for brokers, call in self._levers.values() if broker in brokers]
        jumps = [NodeCall("jump", {"seconds": self._ahead})] if self._ahead else []
        return [*self._cuts[broker], *levers, *jumps]
