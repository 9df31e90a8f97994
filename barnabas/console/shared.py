"""The client, its metadata, and the results of work that all pages share."""

import asyncio
import copy
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from barnabas.client.cluster import Cluster
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import metadata

T = TypeVar("T")
MOST_KEPT: Final = 256
PERIOD_S: Final = 1.0
"""The shortest time between two Metadata requests."""
_REST_S: Final = 0.005
LONGEST_REST_S: Final = 60.0
"""A result is kept so long for each row that brokers have read for it, at most the longest rest.
A row takes a broker 5 to 15 microseconds of CPU, in which its other clients wait: each kind of work
takes less than 0.3 percent of its time, however large the cluster is."""


class SharedCluster(Cluster):
    """A cluster that asks for the metadata of all topics, at most once in PERIOD_S.

    A call within that time gets the response, or the error, of the last request.
    """

    def __init__(self, bootstrap: str, **options: Any) -> None:
        super().__init__(bootstrap, **options)
        self._latest: asyncio.Task[metadata.MetadataResponse] | None = None
        self._asked_at = 0.0

    async def refresh(
        self,
        topics: Iterable[str] | None = None,
        *,
        create: bool = False,  # noqa: ARG002  (a console creates no topic)
    ) -> metadata.MetadataResponse:
        wanted = None if topics is None else list(topics)
        now = asyncio.get_running_loop().time()
        latest = self._latest
        if latest is None or (latest.done() and now - self._asked_at >= PERIOD_S):
            self._asked_at = now
            self._latest = latest = asyncio.create_task(super().refresh(None))
        # A page that is left must not cancel the request of the others.
        response = await asyncio.shield(latest)
        if len(self.topics) < len(response.topics) or not self.nodes:
            # After an error of another request the client has forgotten them.
            self._keep(response)
        return response if wanted is None else _part(response, wanted)

    async def refresh_after_now(self) -> None:
        """Refresh the metadata by a new request, not one in flight: something may be new."""
        if self._latest is not None:
            left = self._asked_at + PERIOD_S - asyncio.get_running_loop().time()
            await asyncio.sleep(max(left, 0))
        await self.refresh()

    def _keep(self, response: metadata.MetadataResponse) -> None:
        self._remember_brokers(response)
        for topic in response.topics:
            self._remember(topic)

    async def close(self) -> None:
        if self._latest is not None:
            self._latest.cancel()
        await super().close()


def _part(response: metadata.MetadataResponse, topics: list[str]) -> metadata.MetadataResponse:
    """Return the response as if only these topics had been asked for."""
    known = {row.name: row for row in response.topics}
    part = copy.copy(response)
    part.topics = [known.get(name) or _unknown(name) for name in topics]
    return part


def _unknown(name: str) -> metadata.MetadataResponseTopic:
    return metadata.MetadataResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name, partitions=[]
    )


def _few(_result: object) -> int:
    """Return the rows of a result that costs little."""
    return 0


@dataclass(slots=True)
class _Kept:
    task: asyncio.Future[Any]
    began: float
    before: asyncio.Future[Any] | None
    """The result before, while the task runs."""
    rows: Callable[[Any], int]
    rest_s: float = 0.0

    def end(self, task: asyncio.Future[Any]) -> None:
        # No caller may wait for the error any more.
        if not task.cancelled() and task.exception() is None:
            self.rest_s = min(self.rows(task.result()) * _REST_S, LONGEST_REST_S)

    def is_old(self, now: float, for_s: float) -> bool:
        """Return whether the work is due again."""
        return self.task.done() and now - self.began >= max(for_s, self.rest_s)


class Results:
    """The last result of each kind of work, shared by all callers within a time."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    async def get(
        self,
        key: Hashable,
        work: Callable[[], Awaitable[T]],
        *,
        for_s: float,
        stale_s: float = 0.0,
        rows: Callable[[T], int] = _few,
    ) -> T:
        """Return the result of `begin`; errors are shared too."""
        return await asyncio.shield(self.begin(key, work, for_s=for_s, stale_s=stale_s, rows=rows))

    def begin(
        self,
        key: Hashable,
        work: Callable[[], Awaitable[T]],
        *,
        for_s: float,
        stale_s: float = 0.0,
        rows: Callable[[T], int] = _few,
    ) -> "asyncio.Future[T]":
        """Return the future of a result that is not older than `for_s`, or than the rest after so
        many rows: `rows` returns the number that brokers have read for a result.

        Its work continues if the caller does not wait for it. While it is computed anew, the
        previous result takes its place, if that is not older than its rest and `stale_s`.
        """
        now = asyncio.get_running_loop().time()
        kept = self._kept.get(key)
        if kept is None or kept.is_old(now, for_s):
            before = _usable(kept, now - stale_s)
            kept = _Kept(asyncio.ensure_future(work()), now, before, rows)
            kept.task.add_done_callback(kept.end)
            self._kept[key] = kept
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)[1].task.cancel()
        before = None if kept.task.done() else kept.before
        return cast("asyncio.Future[T]", before or kept.task)

    def forget(self) -> None:
        """Compute everything again: something was changed."""
        self._kept.clear()

    def close(self) -> None:
        for kept in self._kept.values():
            kept.task.cancel()
        self._kept.clear()


def _usable(kept: _Kept | None, since: float) -> "asyncio.Future[Any] | None":
    if kept is None or kept.began + kept.rest_s < since:
        return None
    failed = kept.task.cancelled() or kept.task.exception() is not None
    return None if failed else kept.task
