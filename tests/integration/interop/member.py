"""A member of a group with any client library, polled by its own thread."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, Protocol

DEADLINE = 30.0


class Consumer(Protocol):
    """The consumer of a library; only one thread calls it."""

    revoked: int
    """The number of partitions revoked so far."""

    def poll(self) -> list[str]: ...
    def owned(self) -> list[int]: ...
    def commit(self) -> None: ...
    def lag(self) -> int: ...
    def close(self) -> None: ...


class Member:
    """Keeps a consumer polled; every other call waits until that thread carries it out."""

    def __init__(self, join: Callable[[], Consumer]) -> None:
        self._commands: SimpleQueue[tuple[Callable[[Consumer], Any], Future[Any]]] = SimpleQueue()
        self._read: list[str] = []
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(join,), daemon=True)
        self._thread.start()

    def state(self) -> dict[str, Any]:
        """Return the owned partitions, the values that were read, and the count of revoked
        partitions."""
        return dict(
            self._in_turn(
                lambda it: {"owned": it.owned(), "read": list(self._read), "revoked": it.revoked}
            )
        )

    def commit(self) -> None:
        self._in_turn(lambda it: it.commit())

    def lag(self) -> int:
        """Return how many messages of its partitions it has not read yet."""
        return int(self._in_turn(lambda it: it.lag()))

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(DEADLINE)

    def _in_turn(self, command: Callable[[Consumer], Any]) -> Any:
        done: Future[Any] = Future()
        self._commands.put((command, done))
        return done.result(DEADLINE)

    def _run(self, join: Callable[[], Consumer]) -> None:
        consumer = join()
        try:
            while not self._leaving.is_set():
                self._read += consumer.poll()
                self._carry_out(consumer)
        finally:
            consumer.close()

    def _carry_out(self, consumer: Consumer) -> None:
        while True:
            try:
                command, done = self._commands.get_nowait()
            except Empty:
                return
            try:
                done.set_result(command(consumer))
            except Exception as error:
                done.set_exception(error)
