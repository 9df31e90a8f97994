"""The long work on records: its turns on the event loop, its calls of codecs, and its memory.

The steps (`barnabas/storage/log/record_steps.py`) run in the slicer. Codecs are called in a
thread, which serves the topics in turn, a call of about a millisecond each. Memory for decompressed
records is granted before it is taken, and bounded for the whole broker.

A block of Snappy is decompressed in one call, which takes a millisecond for each MB. Long calls
have a separate thread and memory, so that no other work waits for them.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from barnabas.broker.loop.offload import Offload
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.server.limits.budget import RequestMemory
from barnabas.protocol.steps import Steps
from barnabas.storage.log.record_steps import Memory, RecordSteps

T = TypeVar("T")
MEMORY_BYTES: Final = 64 * 1024 * 1024
"""The memory for batches that are read at the same time: their bytes, and what codecs keep. Half of
it is for work with long calls. In each half one piece of work may exceed it alone."""
LONG_CALL: Final = 1024 * 1024
"""The decompressed bytes of a call from which it is a long one."""


class Interrupted(Exception):
    """The work is not wanted any more, because the log or its configuration has changed."""


class RecordWork:
    """The long work on the records of all partitions of this broker."""

    def __init__(self, slicer: Slicer, offload: Offload, memory_bytes: int = MEMORY_BYTES) -> None:
        self.slicer = slicer
        self._short = CodecThread(offload, "codec", memory_bytes // 2)
        self._long = CodecThread(offload, "codec-long", memory_bytes // 2)
        self._largest_short = memory_bytes // 4

    def carry_out(
        self, topic: str, steps: RecordSteps[T], is_wanted: Callable[[], bool]
    ) -> Steps[T]:
        """Carry out work on a batch of `topic`, for the slicer; return its result.

        Raises Interrupted if, after a pause, `is_wanted` returns False.
        """
        codecs = self._short
        held = _Memory()
        try:
            step = next(steps)
            while True:
                if isinstance(step, Memory):
                    if self._is_long(step):
                        codecs = self._long
                    if (granted := held.resize(codecs.memory, step.size)) is not None:
                        yield granted
                    held.keep_last()
                    step = next(steps)
                    continue
                error = result = None
                try:
                    result = yield codecs.call(topic, step) if step is not None else None
                except Exception as raised:
                    error = raised
                if not is_wanted():
                    raise Interrupted
                step = steps.send(result) if error is None else steps.throw(error)
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            steps.close()
            held.release()

    def _is_long(self, step: Memory) -> bool:
        """Return whether other work would wait for this, for its calls or for its memory."""
        return step.call > LONG_CALL or step.size > self._largest_short


class _Memory:
    """One piece of work as `Holder` in `barnabas/broker/server/limits/budget.py`."""

    receiving = oldest = None
    announced = 0
    """Memory is granted in the order of the requests."""

    def __init__(self) -> None:
        self._memories: list[RequestMemory] = []
        """Two while work with short calls waits for the memory of long ones."""
        self._granted: asyncio.Future[None] | None = None

    def resize(self, memory: RequestMemory, size: int) -> "asyncio.Future[None] | None":
        """Take `size` bytes in all; return a future if they are not available yet."""
        if memory not in self._memories:
            self._memories.append(memory)
        if memory.resize(self, size):
            return None
        self._granted = asyncio.get_running_loop().create_future()
        return self._granted

    def keep_last(self) -> None:
        """Give back the bytes of another memory than the last one."""
        while len(self._memories) > 1:
            self._memories.pop(0).leave(self)

    def release(self) -> None:
        for memory in self._memories:
            memory.leave(self)

    def memory_granted(self) -> None:
        assert self._granted is not None
        if not self._granted.done():
            self._granted.set_result(None)

    def abort(self) -> None:
        """Do nothing: only slow connections are closed."""


class CodecThread:
    """A thread of the codecs; topics whose calls wait are served in turn.

    Attributes:
        memory: the memory of the work that calls it.
    """

    def __init__(self, offload: Offload, queue: str, memory_bytes: int) -> None:
        self.memory = RequestMemory(memory_bytes)
        self._offload = offload
        self._queue = queue
        self._waiting: dict[str, deque[tuple[Callable[[], Any], asyncio.Future[Any]]]] = {}
        """The calls by topic; the first topic is next."""
        self._busy = False

    def call(self, topic: str, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Call `work` in the thread; the future has its result or error."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(topic, deque()).append((work, done))
        if not self._busy:
            self._next()
        return done

    def _next(self) -> None:
        topic = next(iter(self._waiting))
        calls = self._waiting.pop(topic)
        work, done = calls.popleft()
        if calls:
            self._waiting[topic] = calls
        self._busy = True
        self._offload.submit(self._queue, work).add_done_callback(partial(self._finished, done))

    def _finished(self, done: "asyncio.Future[Any]", call: "asyncio.Future[Any]") -> None:
        self._busy = False
        if self._waiting:
            self._next()
        if done.done():
            return
        if (error := call.exception()) is not None:
            done.set_exception(error)
        else:
            done.set_result(call.result())
