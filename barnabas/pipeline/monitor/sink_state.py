"""The state of a sink in the cluster: its last decision and its open transactions."""

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final

from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connect
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.operations.sinks.log import CommittedDecision, DecisionReader
from barnabas.pipeline.monitor.progress import (
    UNKNOWN,
    DecisionCounts,
    LastDecision,
    SinkState,
    SinkTransaction,
)
from barnabas.protocol.errors import KafkaError, ProtocolError

_INTERVAL: Final = 2.0
_TIMEOUT: Final = 10.0
_TAIL: Final = 100
"""Offsets before the end of the decisions that are read first."""


class Tally:
    """The decisions of a sink since it was first asked; readers of its topic may follow another."""

    def __init__(self) -> None:
        self.counts = DecisionCounts(0, 0, 0)
        self._next: int | None = None
        """The first offset that is not counted yet; None before the first call."""

    def add(self, reader: DecisionReader, found: Sequence[CommittedDecision]) -> None:
        """Count what a reader has found, up to its position."""
        if self._next is not None:
            start, counts = self._next, self.counts
            new = [each.decision for each in found if each.offset >= start]
            self.counts = DecisionCounts(
                counts.committed + len(new),
                counts.transactions + sum(len(each.winners) for each in new),
                counts.dropped + sum(offset >= start for offset in reader.dropped),
            )
        reader.dropped.clear()
        self._next = max(reader.position, self._next or 0)


async def read_sink_state(
    cluster: Cluster,
    sink_id: str,
    reader: DecisionReader,
    before: LastDecision | None = None,
    tally: Tally | None = None,
) -> SinkState:
    """Return the state of a sink; `before` is its last decision at the last call."""
    decisions = await reader.more()
    if tally is not None:
        tally.add(reader, decisions)
    last = last_decision(decisions[-1]) if decisions else before
    rows = await TransactionAdmin(cluster).open_under(f"{sink_id}.")
    now_ms = time.time() * 1000
    return SinkState(
        last,
        None if tally is None else tally.counts,
        tuple(
            SinkTransaction(
                row.transactional_id,
                row.producer_id,
                row.producer_epoch,
                max(0.0, (now_ms - row.transaction_start_time_ms) / 1000),
                row.is_kept,
            )
            for row in rows
        ),
        problem=None,
    )


def last_decision(stored: CommittedDecision) -> LastDecision:
    """Return a decision as it is shown."""
    decision = stored.decision
    rows = sum(each.rows for each in decision.winners)
    return LastDecision(
        decision.number, decision.query_id, len(decision.winners), rows, stored.offset
    )


class SinkWatch:
    """A thread that reads the state of a sink again and again; a context manager."""

    def __init__(self, bootstrap: str, sink_id: str, connect: Connect | None = None) -> None:
        self._bootstrap = bootstrap
        self._sink_id = sink_id
        self._connect = connect
        self._state = UNKNOWN
        self._tally = Tally()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sink-watch", daemon=True)

    def __enter__(self) -> "SinkWatch":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(_TIMEOUT)

    def read(self) -> SinkState:
        """Return the last state that was read."""
        return self._state

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                asyncio.run(self._poll())
            except (KafkaError, ProtocolError, OSError, ValueError) as error:
                reason = str(error) or type(error).__name__
                self._state = replace(self._state, problem=reason)
                self._stop.wait(_INTERVAL)

    async def _poll(self) -> None:
        async with Cluster(
            self._bootstrap,
            client_id="barnabas-monitor",
            timeout=_TIMEOUT,
            connect=self._connect,
        ) as cluster:
            reader = DecisionReader(cluster, self._sink_id, tail=_TAIL)
            while not self._stop.is_set():
                self._state = await read_sink_state(
                    cluster, self._sink_id, reader, self._state.decision, self._tally
                )
                await asyncio.to_thread(self._stop.wait, _INTERVAL)
