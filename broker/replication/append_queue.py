"""Appends that take long, because records must be looked into: done in steps, others in between.

A partition's appends keep their order: while one waits, the next must be put here too. Partitions
take turns, one append each, so that what is inflated at once is one batch. All but the work of a
codec happens on the event loop: a step a turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from barnabas.broker.offload import Offload
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.records.varint import Buffer
from barnabas.storage.log_parts import Appended
from barnabas.storage.validator import Origin, Rules, Steps, Validated, validation

_LANE = "codec"


class Append:
    """A producer's batch on its way into a partition."""

    __slots__ = ("data", "done", "now_ms", "options", "partition")

    def __init__(self, partition: Partition, data: bytes, now_ms: int, options: Any) -> None:
        self.partition = partition
        self.data = data
        self.now_ms = now_ms
        self.options = options
        self.done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        """Where it went, or why it was refused; whoever cancels it wants it no more."""


class AppendQueue:
    """The appends of all partitions that could not be done at once."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._turns: deque[Partition] = deque()
        """Partitions with appends that wait; the first one has its turn."""
        self._steps: Steps[Validated] | None = None
        self._rules: Rules | None = None

    def put(
        self, partition: Partition, data: Buffer, *, now_ms: int, **options: Any
    ) -> "asyncio.Future[Appended]":
        """Append a copy of `data` when it is its turn; `options` as `Partition.append_as_leader`.

        The future raises as that does. To cancel it takes the append out of the queue.
        """
        append = Append(partition, bytes(data), now_ms, options)
        if not partition.appends:
            self._turns.append(partition)
            if len(self._turns) == 1:
                self._soon()
        partition.appends.append(append)
        return append.done

    def _soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._step)

    def _step(self, resume: Callable[[Steps[Validated]], Any] = next) -> None:
        """Take one step of the append whose turn it is."""
        partition = self._turns[0]
        append = partition.appends[0]
        try:
            if append.done.cancelled():
                self._next()
                return
            if self._steps is None or self._rules is not partition.log.rules:
                # Rules that changed meanwhile hold for all that is not appended yet.
                resume = next
                self._begin(append)
            assert self._steps is not None
            work = resume(self._steps)
        except StopIteration as end:
            self._append(append, end.value)
            self._next()
        except Exception as error:
            append.done.set_exception(error)
            self._next()
        else:
            if work is None:
                self._soon()
            else:
                self._offload.submit(_LANE, work).add_done_callback(self._worked)

    def _begin(self, append: Append) -> None:
        partition = append.partition
        partition.require_leader()
        self._rules = partition.log.rules
        self._steps = validation(
            append.data, self._rules, origin=Origin.CLIENT, now_ms=append.now_ms
        )

    def _worked(self, work: "asyncio.Future[Any]") -> None:
        """A codec is done."""
        if (error := work.exception()) is not None:
            self._step(lambda steps: steps.throw(error))
        else:
            self._step(lambda steps: steps.send(work.result()))

    def _append(self, append: Append, validated: Validated) -> None:
        try:
            append.done.set_result(
                append.partition.append_as_leader(
                    append.data, now_ms=append.now_ms, validated=validated, **append.options
                )
            )
        except Exception as error:
            append.done.set_exception(error)

    def _next(self) -> None:
        """The append whose turn it was is done with: now the next partition's."""
        self._steps = self._rules = None
        partition = self._turns.popleft()
        partition.appends.popleft()
        if partition.appends:
            self._turns.append(partition)
        if self._turns:
            self._soon()
