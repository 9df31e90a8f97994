"""The end of a transaction by an operator: fence its producer, or abort one that hangs."""

from typing import Any

from starlette.requests import Request

from barnabas.client.transaction_admin import TransactionAdmin, client_of
from barnabas.config.key import INT_MAX
from barnabas.console.changes import Change, Done, Field, Plan
from barnabas.console.console import Console, parameter, whole_number
from barnabas.console.reads import now_ms
from barnabas.operations.partitions import partitions_of
from barnabas.operations.transactions.hanging import (
    abort_one,
    repair_all,
    require_abort,
    transaction_at,
)
from barnabas.operations.transactions.kept import (
    end_two_phase,
    explanation,
    refuse_two_phase,
    require_two_phase,
)
from barnabas.protocol.messages.describe_transactions import TransactionState
from barnabas.protocol.topic_partition import TopicPartition


def _places(row: TransactionState) -> list[str]:
    return sorted(f"{topic.topic}-{each}" for topic in row.topics for each in topic.partitions)


async def _plan_fence(console: Console, request: Request) -> Plan:
    id = parameter(request, "id")
    row = await TransactionAdmin(console.cluster).describe(id, include_events=True)
    refuse_two_phase(row, now_ms())
    places = _places(row)
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


async def _fence(console: Console, request: Request, _facts: Any) -> Done:
    id = parameter(request, "id")
    producer_id, epoch = await TransactionAdmin(console.cluster).fence(id)
    sentence = f"{id} was fenced: producer id {producer_id} goes on with epochs above {epoch}."
    return Done(sentence, "/transaction", {"id": id})


def _place(request: Request) -> tuple[TopicPartition, int]:
    index = whole_number(request, "partition", 0, most=INT_MAX)
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


async def _abort(console: Console, request: Request, _facts: Any) -> Done:
    place, start = _place(request)
    await abort_one(console.cluster, place, start, force=False, now_ms=now_ms())
    sentence = f"The transaction at offset {start} of {place.topic}-{place.partition} was aborted."
    return Done(sentence, "/topic", {"name": place.topic})


async def _plan_repair(console: Console, request: Request) -> Plan:
    topic = parameter(request, "topic").strip()
    places = await partitions_of(console.cluster, [(topic, None)])
    found = await repair_all(console.cluster, places, dry_run=True)
    certain = [each for each in found if each.decision != "unknown"]
    if not certain:
        reasons = "".join(f"; {each.topic}-{each.partition}: {each.why}" for each in found)
        raise ValueError(f"no marker of {topic} is missing whose decision is certain{reasons}")
    left = len(found) - len(certain)
    return Plan(
        f"{len(certain)} marker(s) that were lost will be written into {topic} again, as the "
        f"transaction log has decided; {left} transaction(s) are left as they are.",
        f"Write {len(certain)} marker(s)",
        ["Partition", "From offset", "Producer", "Epoch", "Decision", "Because"],
        [
            [
                f"{each.topic}-{each.partition}",
                str(each.start_offset),
                str(each.producer_id),
                str(each.producer_epoch),
                each.decision if each.decision != "unknown" else "none: left as it is",
                each.why,
            ]
            for each in found
        ],
        sorted(
            [each.partition, each.start_offset, each.producer_id, each.decision] for each in found
        ),
    )


async def _repair(console: Console, request: Request, _facts: Any) -> Done:
    topic = parameter(request, "topic").strip()
    places = await partitions_of(console.cluster, [(topic, None)])
    rows = await repair_all(console.cluster, places, dry_run=False)
    written = sum(each.written for each in rows)
    return Done(f"{written} marker(s) were written into {topic}.", "/topic", {"name": topic})


_OUTCOMES = (("commit", "commit it"), ("abort", "abort it"))


async def _plan_end(console: Console, request: Request) -> Plan:
    id, outcome = parameter(request, "id"), parameter(request, "outcome")
    if outcome not in dict(_OUTCOMES):
        raise ValueError(f"{outcome} is no outcome")
    row = await TransactionAdmin(console.cluster).describe(id, include_events=True)
    require_two_phase(row)
    places = _places(row)
    done = "committed" if outcome == "commit" else "aborted"
    return Plan(
        f"The transaction of {id} will be {done} in {len(places)} partition(s), for good. It is "
        f"{explanation(row, now_ms())}. Its outcome is decided where it was prepared: choose the "
        "same. A Spark sink's transactions are ended by barnabas pipeline recover.",
        f"{outcome.capitalize()} the transaction",
        ["Partition of the transaction"],
        [[each] for each in places],
        [outcome, row.producer_id, row.producer_epoch, *client_of(row), places],
    )


async def _end(console: Console, request: Request, _facts: Any) -> Done:
    id, is_commit = parameter(request, "id"), parameter(request, "outcome") == "commit"
    await end_two_phase(console.cluster, id, committed=is_commit)
    done = "committed" if is_commit else "aborted"
    return Done(f"The transaction of {id} was {done}.", "/transaction", {"id": id})


PAGES = (
    Change(
        "/transaction/end",
        "End a transaction of two-phase commit",
        _plan_end,
        _end,
        fields=(
            Field("id", "Transactional id", is_needed=True, is_fixed=True),
            Field("outcome", "Outcome", "", _OUTCOMES, is_needed=True),
        ),
    ).page(),
    Change(
        "/topic/repair",
        "Write lost markers again",
        _plan_repair,
        _repair,
        fields=(Field("topic", "Topic", is_needed=True),),
    ).page(),
    Change("/transaction/fence", "Fence a producer", _plan_fence, _fence).page(),
    Change("/transaction/abort", "Abort a hanging transaction", _plan_abort, _abort).page(),
)
