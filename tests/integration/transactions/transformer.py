"""Consume, transform, produce, each record once, with any client library.

A library implements `Worker`. A transaction takes up to `BATCH` records of the input; every third
one is aborted and repeated. After any error the worker continues from the group's offsets.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, Self, TypeVar

T = TypeVar("T")

BATCH = 200
GATHERED_S = 0.2
"""A transaction of an input that is slow has fewer records."""
IN_TIME_S = 60.0


class Route(NamedTuple):
    """The topics that records are copied from and to, the group with its protocol, and the
    transactional id."""

    input: str
    output: str
    group: str
    transactional_id: str
    protocol: str

    @classmethod
    def named(cls, name: str, member: str = "", protocol: str = "classic") -> Self:
        """Return one of several routes that are used at once, for its only member or for one of
        several."""
        names = f"{name}input", f"{name}output", f"{name}transformers", f"{name}transformer{member}"
        return cls(*names, protocol)


class Taken(NamedTuple):
    """A record of the input."""

    partition: int
    offset: int
    value: bytes


class Worker(Protocol):
    """A consumer in the group, and a transactional producer. Any call may raise."""

    def poll(self, limit: int) -> list[Taken] | None:
        """Return records; None if partitions were given up, with records of polls before."""
        ...

    def rewind(self) -> dict[int, int]:
        """Go back to the group's offsets of the input, and return them by partition; the default is
        0."""
        ...

    def begin(self) -> None: ...
    def send(self, partition: int, value: bytes) -> None: ...
    def send_offsets(self, offsets: dict[int, int]) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...

    def renew(self) -> None:
        """Replace a producer that cannot go on."""
        ...

    def close(self) -> None: ...


def transformed(value: bytes) -> bytes:
    """Return the value in the output for a record of the input."""
    return value + b" seen"


class Transformer:
    """Copies the input to the output, and prints each transaction to standard output."""

    def __init__(self, worker: Worker, total: int) -> None:
        self._worker = worker
        self._total = total
        self._at: dict[int, int] = {}
        """The group's offsets, by partition."""
        self._attempts = 0
        self._stops = False

    def stop(self) -> None:
        """Leave the group after the current transaction."""
        self._stops = True

    def run(self) -> None:
        self._rewind()
        while sum(self._at.values()) < self._total and not self._stops:
            batch = self._take()
            if batch is None:
                self._rewind()
                continue
            self._attempts += 1
            try:
                self._transact(batch, aborts=self._attempts % 3 == 0)
            except Exception as error:
                self._recover(error)
        self._worker.close()

    def _take(self) -> list[Taken] | None:
        """Return records for one transaction; None if the consumer is not at the group's offsets,
        or it stops."""
        batch: list[Taken] = []
        expected = dict(self._at)
        wanted = min(BATCH, self._total - sum(self._at.values()))
        began = time.monotonic()
        while len(batch) < wanted and not (batch and time.monotonic() > began + GATHERED_S):
            missing = wanted - len(batch)
            polled = insist(partial(self._worker.poll, missing))
            if polled is None or (self._stops and not polled):
                return None
            if batch and not polled:
                # Other members may have the rest.
                break
            for each in polled:
                # A partition that it did not have at the rewind has no offset here.
                if each.offset != expected.get(each.partition):
                    return None
                expected[each.partition] += 1
                batch.append(each)
        return batch

    def _transact(self, batch: list[Taken], *, aborts: bool) -> None:
        worker = self._worker
        # Those of its other partitions may belong to another member by now.
        after = {each.partition: each.offset + 1 for each in batch}
        worker.begin()
        for each in batch:
            worker.send(each.partition, transformed(each.value))
        worker.send_offsets(after)
        if aborts:
            worker.abort()
            tell("aborted")
            self._rewind()
        else:
            worker.commit()
            tell("committed")
            self._at |= after

    def _recover(self, error: Exception) -> None:
        tell(f"failed {error!r}")
        try:
            self._worker.abort()
        except Exception as refused:
            tell(f"renewed {refused!r}")
            insist(self._worker.renew)
        self._rewind()

    def _rewind(self) -> None:
        self._at = insist(self._worker.rewind)


def tell(text: str) -> None:
    print(text, flush=True)


def silently(_text: str) -> None:
    """Print nothing; used instead of `tell` if standard output is for records."""


def insist(step: Callable[[], T], told: Callable[[str], None] = tell) -> T:
    """Repeat a step that fails while the broker is away."""
    deadline = time.monotonic() + IN_TIME_S
    while True:
        try:
            return step()
        except Exception as error:
            if time.monotonic() > deadline:
                raise
            told(f"again {error!r}")
            time.sleep(0.05)
