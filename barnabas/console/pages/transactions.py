"""The transactions of the cluster: what is held back and by whom, and the state of each id."""

from typing import Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from barnabas.client.transaction_admin import TransactionAdmin, client_of, is_two_phase
from barnabas.console.console import Console, Page, paged, parameter, search_of, soon
from barnabas.console.reads import (
    SOON_S,
    LogEnds,
    begin_committed,
    begin_stuck,
    log_ends,
    now_ms,
    transactions,
)
from barnabas.protocol.topic_partition import TopicPartition

_ON_A_PAGE: Final = 25
_MOST_SHOWN: Final = 50
_UNDER_WAY: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
_STATES: Final = ("Empty", *_UNDER_WAY, "CompleteCommit", "CompleteAbort")


class PartitionOfTransaction(NamedTuple):
    """A partition of an open transaction, and the groups that read it."""

    at: TopicPartition
    ends: LogEnds | None
    groups: list[str]


async def show_all(console: Console, request: Request) -> Response:
    search, state = search_of(request), request.query_params.get("state", "")
    if state not in ("", "all", *_STATES):
        raise HTTPException(400, f"The state must be one of {', '.join(_STATES)}.")
    states = {"": _UNDER_WAY, "all": ()}.get(state, (state,))
    listed = await transactions(console, states)
    found = [each for each in listed if search.lower() in each.transactional_id.lower()]
    paging = paged(request, found, _ON_A_PAGE)
    admin = TransactionAdmin(console.cluster)
    described = await admin.describe_all(each.transactional_id for each in paging.rows)
    stuck = await soon(begin_stuck(console), SOON_S)
    return console.page(
        request,
        "transactions.html",
        paging=paging,
        described=described,
        stuck=stuck,
        shown=[] if stuck is None else stuck.rows[:_MOST_SHOWN],
        search=search,
        state=state,
        states=_STATES,
        now_ms=now_ms(),
    )


async def show(console: Console, request: Request) -> Response:
    id = parameter(request, "id")
    row = await TransactionAdmin(console.cluster).describe(id, include_events=True)
    places = [
        TopicPartition(topic.topic, each) for topic in row.topics for each in topic.partitions
    ]
    ends = await log_ends(console, places)
    committed = await soon(begin_committed(console), SOON_S)
    readers = {} if committed is None else committed.by_partition
    return console.page(
        request,
        "transaction.html",
        row=row,
        client=client_of(row),
        is_two_phase=is_two_phase(row),
        partitions=[
            PartitionOfTransaction(each, ends.get(each), sorted(readers.get(each, {})))
            for each in sorted(places)
        ],
        committed=committed,
        now_ms=now_ms(),
    )


PAGES = (Page("/transactions", show_all, "Transactions"), Page("/transaction", show))
