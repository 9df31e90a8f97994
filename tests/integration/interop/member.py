"""A member of a group, polled by a thread of its own, whatever its client library."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, Protocol

DEADLINE = 30.0


class Consumer(Protocol):
    """What a library's consumer must do here; only one thread calls it."""

    revoked: int
    """How many partitions were taken away so far."""

    def poll(self) -> list[str]: ...
    def owned(self) -> list[int]: ...
    def commit(self) -> None: ...
    def lag(self) -> int: ...
    def close(self) -> None: ...


class Member:
    """Keeps a consumer polled; every other call waits for its turn in that thread."""

    def __init__(self, join: Callable[[], Consumer]) -> None:
        self._orders: SimpleQueue[tuple[Callable[[Consumer], Any], Future[Any]]] = SimpleQueue()
        self._read: list[str] = []
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(join,), daemon=True)
        self._thread.start()

    def state(self) -> dict[str, Any]:
        """The partitions it owns, the values that it read, and how much was taken from it."""
        return dict(
            self._in_turn(
                lambda it: {"owned": it.owned(), "read": list(self._read), "revoked": it.revoked}
            )
        )

    def commit(self) -> None:
        self._in_turn(lambda it: it.commit())

    def lag(self) -> int:
        """How many messages of its partitions it has not come to."""
        return int(self._in_turn(lambda it: it.lag()))

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(DEADLINE)

    def _in_turn(self, order: Callable[[Consumer], Any]) -> Any:
        done: Future[Any] = Future()
        self._orders.put((order, done))
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
                order, done = self._orders.get_nowait()
            except Empty:
                return
            try:
                done.set_result(order(consumer))
            except Exception as error:
                done.set_exception(error)
