"""The sinks of pipelines as the cluster shows them: decisions, and transactions that are open."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from barnabas.client.transaction_admin import ONGOING, TransactionAdmin, is_two_phase
from barnabas.console.console import CLUSTER_ERRORS, Console, Page, paged, parameter, search_of
from barnabas.console.reads import now_ms, transactions
from barnabas.operations.sinks.decisions import (
    Identity,
    SinkDecision,
    decisions_topic,
    sink_of,
)
from barnabas.operations.sinks.log import CommittedDecision, DecisionReader
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_transactions import TransactionState

_ON_A_PAGE: Final = 25
_DECISIONS: Final = 50
"""The decisions that the page of a sink shows, unless compaction has left fewer."""
_TAIL: Final = 2 * _DECISIONS + 20
"""The offsets before the end of the decisions that are read: each has a marker behind it."""
_MOST_OPEN: Final = 1000
"""The open transactions that are described for a page."""
_FOR_S: Final = 2.0
_ANSWER_S: Final = 3.0


class OfSink(NamedTuple):
    """An open transaction of a sink."""

    row: TransactionState
    is_two_phase: bool
    age_ms: int
    is_decided: bool
    """Whether the last decision commits it."""


class Sink(NamedTuple):
    """A sink; the problem says why its decisions cannot be read."""

    id: str
    decisions: list[CommittedDecision]
    """The last ones, the newest first."""
    problem: str | None
    open: list[OfSink]

    @property
    def last(self) -> CommittedDecision | None:
        return self.decisions[0] if self.decisions else None

    @property
    def kept(self) -> int:
        return sum(each.row.is_kept for each in self.open)

    @property
    def oldest_ms(self) -> int | None:
        """The age of the oldest open transaction."""
        return max((each.age_ms for each in self.open), default=None)


async def show_all(console: Console, request: Request) -> Response:
    search = search_of(request)
    await console.cluster.refresh()
    found = (sink_of(name) for name in console.cluster.topics)
    ids = sorted(each for each in found if each is not None and search.lower() in each.lower())
    paging = paged(request, ids, _ON_A_PAGE)
    sinks = await _sinks(console, paging.rows)
    return console.page(
        request, "pipelines.html", paging=paging, sinks=sinks, search=search, now_ms=now_ms()
    )


async def show(console: Console, request: Request) -> Response:
    id = parameter(request, "sink")
    (sink,) = await _sinks(console, [id])
    if not sink.open and decisions_topic(id) not in console.cluster.topics:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"sink {id} has no decision and nothing open"
        )
    return console.page(
        request,
        "pipeline.html",
        sink=sink,
        decisions=sink.decisions[:_DECISIONS],
        topic=decisions_topic(id),
        now_ms=now_ms(),
    )


async def _sinks(console: Console, ids: Iterable[str]) -> list[Sink]:
    wanted = list(ids)
    read = asyncio.gather(*(_decisions(console, each) for each in wanted))
    rows, decisions = await asyncio.gather(_open_of(console, wanted), read)
    return [
        Sink(id, found, problem, _judged(rows[id], found[0].decision if found else None))
        for id, (found, problem) in zip(wanted, decisions, strict=True)
    ]


def _judged(rows: list[TransactionState], last: SinkDecision | None) -> list[OfSink]:
    named = last.named if last is not None else frozenset()
    now = now_ms()
    return [
        OfSink(
            row,
            is_two_phase(row),
            max(now - row.transaction_start_time_ms, 0),
            (row.transactional_id, Identity(row.producer_id, row.producer_epoch)) in named,
        )
        for row in rows
    ]


async def _decisions(console: Console, id: str) -> tuple[list[CommittedDecision], str | None]:
    async def read() -> list[CommittedDecision]:
        async with asyncio.timeout(_ANSWER_S):
            return await DecisionReader(console.cluster, id, tail=_TAIL).more()

    try:
        found = await console.results.get(("decisions", id), read, for_s=_FOR_S)
    except (*CLUSTER_ERRORS, ValueError) as error:
        # Another topic may have such a name.
        return [], str(error) or "no answer in time"
    return found[::-1], None


async def _open_of(console: Console, ids: Iterable[str]) -> dict[str, list[TransactionState]]:
    """Return the open transactions of sinks: those whose ids begin with the sink's and a dot."""
    admin = TransactionAdmin(console.cluster)
    wanted = tuple(f"{each}." for each in ids)
    names = [each.transactional_id for each in await transactions(console, (ONGOING,))]
    described = await admin.describe_all(
        [each for each in names if each.startswith(wanted)][:_MOST_OPEN]
    )
    found: dict[str, list[TransactionState]] = defaultdict(list)
    for prefix in wanted:
        found[prefix[:-1]] = [
            row
            for id, row in sorted(described.items())
            if id.startswith(prefix) and row.transaction_state == ONGOING
        ]
    return found


PAGES = (Page("/pipelines", show_all, "Pipelines"), Page("/pipeline", show))
