"""The end of a transaction by an operator: fence its producer, or abort one that hangs."""

from typing import Any

from starlette.requests import Request

from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.console.changes import Change, Done, Plan, changed
from barnabas.console.console import Console, parameter, whole_number
from barnabas.console.reads import now_ms
from barnabas.operations.transactions.hanging import abort_one, require_abort, transaction_at
from barnabas.operations.transactions.kept import refuse_two_phase
from barnabas.protocol.topic_partition import TopicPartition


async def _plan_fence(console: Console, request: Request) -> Plan:
    id = parameter(request, "id")
    row = await TransactionAdmin(console.cluster).describe(id, include_events=True)
    refuse_two_phase(row, now_ms())
    places = sorted(f"{topic.topic}-{each}" for topic in row.topics for each in topic.partitions)
    aborted = (
        f", and its open transaction in {len(places)} partition(s) will be aborted"
        if places
        else "; no transaction is open"
    )
    return Plan(
        f"The producer of {id} (producer id {row.producer_id}, epoch {row.producer_epoch}) will be "
        f"fenced: it gets an error at its next request{aborted}.",
        "Fence the producer",
        ["Partition of the transaction"],
        [[each] for each in places],
        [row.producer_id, row.producer_epoch, row.transaction_state, places],
    )


async def _fence(console: Console, request: Request, facts: Any) -> Done:
    if (await _plan_fence(console, request)).facts != facts:
        raise changed()
    id = parameter(request, "id")
    producer_id, epoch = await TransactionAdmin(console.cluster).fence(id)
    sentence = f"{id} was fenced: producer id {producer_id} goes on with epochs above {epoch}."
    return Done(sentence, "/transaction", {"id": id})


def _place(request: Request) -> tuple[TopicPartition, int]:
    index = whole_number(request, "partition", 0, most=2**31 - 1)
    place = TopicPartition(parameter(request, "topic"), index)
    return place, whole_number(request, "start", 0)


async def _plan_abort(console: Console, request: Request) -> Plan:
    place, start = _place(request)
    found = await transaction_at(TransactionAdmin(console.cluster), place, start)
    await require_abort(console.cluster, found, now_ms())
    name = f"{place.topic}-{place.partition}"
    return Plan(
        f"An abort marker will be written into {name} for producer id {found.producer_id}, epoch "
        f"{found.producer_epoch}: its records from offset {start} on are not given to "
        "read_committed consumers. The transaction log says that the transaction was aborted.",
        "Abort the transaction",
        ["Partition", "Producer", "Epoch", "From offset"],
        [[name, str(found.producer_id), str(found.producer_epoch), str(start)]],
        [*place, found.producer_id, found.producer_epoch, start],
    )


async def _abort(console: Console, request: Request, facts: Any) -> Done:
    if (await _plan_abort(console, request)).facts != facts:
        raise changed()
    place, start = _place(request)
    await abort_one(console.cluster, place, start, force=False, now_ms=now_ms())
    sentence = f"The transaction at offset {start} of {place.topic}-{place.partition} was aborted."
    return Done(sentence, "/topic", {"name": place.topic})


PAGES = (
    Change("/transaction/fence", "Fence a producer", _plan_fence, _fence).page(),
    Change("/transaction/abort", "Abort a hanging transaction", _plan_abort, _abort).page(),
)
