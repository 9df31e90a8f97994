"""The garbage collector of a broker's process: full collections wait for a quiet moment.

A full collection walks over all objects that are not frozen, in one go: 50 to 120 ms while requests
of 100,000 elements are under way. So CPython begins none by itself. Collections of the two young
generations take less than a millisecond, and stay as they are.

CPython 3.14.0 to 3.14.4 collect the old generation in increments instead, which they begin by
themselves.
"""

import asyncio
import gc
import sys
from collections.abc import Callable
from time import process_time
from typing import Final

from barnabas.broker.loop.slices import Slicer

_NEVER: Final = 2**31 - 1
"""The threshold of the old generation: the largest that CPython takes."""
_ENOUGH: Final = 10
"""The collections of the middle generation after which CPython begins a full one by default."""
_EVERY_S: Final = 1.0
_WHILE_BUSY_S: Final = 0.1
_QUIET_S: Final = 0.5
"""The time without long work that is a quiet moment. Work that waits for a disk is not over."""
_BUSY: Final = 0.2
"""The part of a core that a process takes which answers so many short requests that a collection
would make some of them late."""
_LONG_QUIET_S: Final = 1.0
"""The time without long work before everything is collected, frozen objects too."""
_PATIENCE_S: Final = 30.0
"""The time after which a collection waits no longer for a quiet moment, if memory has grown."""
_GROWN: Final = 1_000_000
"""The blocks of memory by which it has grown then, about 80 MB: more than one request takes."""
_LONG_S: Final = 0.005
"""The time of a collection after which the objects that it found alive are frozen."""

_MANY: Final = 50_000
"""The new objects without cycles that are frozen without a collection: it would take 5 to 10 ms."""


class Collector:
    """The full collections of a process that runs one broker and nothing else.

    Objects that live long are frozen: later collections do not look at them. Their reference counts
    free them as before, unless they are in a cycle. So everything is collected when twice as many
    objects are frozen as after the last time.
    """

    def __init__(self, slicer: Slicer, cpu_s: Callable[[], float] = process_time) -> None:
        self._slicer = slicer
        self._cpu_s = cpu_s
        self._looked = slicer.monotonic(), cpu_s()
        """The time of the last look, and the CPU time of the process then."""
        self._timer: asyncio.TimerHandle | None = None
        self._wanted_since: float | None = None
        self._frozen = 0
        """The frozen objects after the last collection of everything, and those of `note`."""
        self._counted = False
        """Whether the objects that were frozen at the start are counted."""
        self._added = 0
        """The objects that were frozen since, at most."""
        self._blocks = 0
        """The blocks of memory after the last collection."""
        self._noted = 0
        """The number of objects passed to `note` since the last freeze."""

    def start(self) -> None:
        """Freeze the objects that exist now: they live as long as the broker."""
        gc.freeze()
        self._blocks = sys.getallocatedblocks()
        first, second, _ = gc.get_threshold()
        gc.set_threshold(first, second, _NEVER)
        gc.enable()
        self._schedule(_EVERY_S)

    def stop(self) -> None:
        """Begin no more collections."""
        if self._timer is not None:
            self._timer.cancel()

    def note(self, objects: int) -> None:
        """Take note of new objects that live long and are in no cycle, such as loaded rules.

        Many of them are frozen at once, so that no collection looks at them. Other objects are
        frozen too: garbage among them is found when everything is collected.
        """
        self._noted += objects
        if self._noted >= _MANY:
            gc.freeze()
            self._frozen += self._noted
            self._noted = 0

    def _schedule(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self.look)

    def look(self) -> None:
        """Collect if it is time, and look again later."""
        wait, quiet_s = _EVERY_S, self._quiet_s()
        if not self._counted:
            # Not at the start: the first clients would wait for it, for some milliseconds.
            self._frozen, self._counted = gc.get_freeze_count(), True
        if self._added > self._frozen and quiet_s >= _LONG_QUIET_S:
            # Those of a request may have been freed meanwhile.
            # To count them takes a tenth of the time of a collection: 60 ms of 10,000 partitions.
            count = gc.get_freeze_count()
            are_many = count > 2 * self._frozen
            self._frozen = min(self._frozen, count)
            self._added = count - self._frozen
            if are_many:
                self._collect_frozen()
        elif gc.get_count()[2] > _ENOUGH:
            now = self._slicer.monotonic()
            if self._wanted_since is None:
                self._wanted_since = now
            if quiet_s < _QUIET_S and not self._is_pressing(now - self._wanted_since):
                wait = _WHILE_BUSY_S
            else:
                self._wanted_since = None
                self._collect()
        self._schedule(wait)

    def _quiet_s(self) -> float:
        """Return the time without long work; 0 if the process was busy since the last look."""
        before_s, before_cpu_s = self._looked
        now_s, now_cpu_s = self._looked = self._slicer.monotonic(), self._cpu_s()
        busy = now_cpu_s - before_cpu_s > _BUSY * (now_s - before_s)
        return 0.0 if busy else self._slicer.idle_s

    def _is_pressing(self, waited_s: float) -> bool:
        return waited_s >= _PATIENCE_S and sys.getallocatedblocks() > self._blocks + _GROWN

    def _collect(self) -> None:
        began = self._slicer.monotonic()
        gc.collect()
        if self._slicer.monotonic() - began > _LONG_S:
            self._added += len(gc.get_objects())
            gc.freeze()
        self._blocks = sys.getallocatedblocks()

    def _collect_frozen(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._frozen = gc.get_freeze_count()
        self._added = 0
