"""What was done to a cluster and holds: a broker that starts has it from the beginning."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple


class Call(NamedTuple):
    """A method of `Node`, and its arguments: plain JSON values."""

    method: str
    arguments: dict[str, Any]


class Standing:
    """Lines that are cut, levers that are pulled, and the clock, of each broker."""

    def __init__(self) -> None:
        self._cuts: defaultdict[int, list[Call]] = defaultdict(list)
        self._levers: dict[int, tuple[frozenset[int], Call]] = {}
        self._ahead = 0.0

    def cut(self, broker: int, call: Call) -> None:
        if call not in self._cuts[broker]:
            self._cuts[broker].append(call)

    def heal(self) -> None:
        self._cuts.clear()

    def pull(self, number: int, brokers: Iterable[int], call: Call) -> None:
        self._levers[number] = frozenset(brokers), call

    def remove(self, number: int) -> None:
        """Idempotent."""
        self._levers.pop(number, None)

    def brokers_with(self, number: int) -> list[int]:
        """Those that have a lever; none once it was removed."""
        brokers, _ = self._levers.get(number, (frozenset[int](), None))
        return sorted(brokers)

    def jump(self, seconds: float) -> None:
        self._ahead += seconds

    def of(self, broker: int) -> list[Call]:
        """What is to be called before a broker starts."""
        pulled = [call for brokers, call in self._levers.values() if broker in brokers]
        jumped = [Call("jump", {"seconds": self._ahead})] if self._ahead else []
        return [*self._cuts[broker], *pulled, *jumped]
