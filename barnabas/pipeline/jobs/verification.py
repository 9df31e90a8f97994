"""The verification of a job: its output against its input, and against the sink's decisions.

With `lineage: true` each output record names its input records. Independently of that, the rows of
each transaction in the output are counted against the decision that committed it.
"""

import json
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.operations.sinks.log import (
    Bounds,
    CommittedDecision,
    DecisionReader,
    bounds_of,
    read_range,
)
from barnabas.pipeline.jobs.checkpoint import Checkpoint
from barnabas.pipeline.jobs.lineage import (
    LINEAGE_HEADER,
    InputPlace,
    Lineage,
    Partition,
    RecordRange,
)
from barnabas.pipeline.jobs.lineage import parse_places as read_places
from barnabas.pipeline.jobs.spec import Job
from barnabas.pipeline.jobs.topics import input_topics
from barnabas.pipeline.sink.port import Identity
from barnabas.protocol.records.record import iter_records
from barnabas.protocol.topic_partition import TopicPartition

ANOMALIES: Final = 3
NOTHING: Final = 4
"""Exit codes; 0 is for an output without a fault."""
_SHOWN: Final = 5


class Mismatch(NamedTuple):
    """A transaction whose rows in the output are not those that were decided."""

    producer_id: int
    epoch: int
    transactional_id: str | None
    batch: int | None
    decided: int | None
    """None: no decision names the transaction."""
    found: int

    def __str__(self) -> str:
        name = f"{self.producer_id}:{self.epoch}"
        if self.decided is None:
            return f"{name} has {self.found} rows and no decision"
        return (
            f"{name} ({self.transactional_id}, batch {self.batch}) has {self.found} rows, "
            f"{self.decided} were decided"
        )


class Verdict(NamedTuple):
    """The result of a verification."""

    job: str
    rows: int
    """Committed records of the output."""
    with_lineage: int
    inputs: int
    repeated: list[RecordRange]
    missing: list[RecordRange]
    dropped: int
    """Input records that are not in the output because an equal one is."""
    foreign: list[RecordRange]
    decisions: int
    has_all_decisions: bool
    """False if compaction has removed decisions: then rows without one are no fault."""
    mismatches: list[Mismatch]
    pending: int
    """Decided transactions that are not committed yet."""
    allowed_missing: int | None

    @property
    def problems(self) -> list[str]:
        """The faults, a line each."""
        found = []
        if self.repeated:
            found.append(f"{_records(self.repeated)} came more than once: {_some(self.repeated)}")
        missing = sum(each.records for each in self.missing)
        if self.allowed_missing is not None and missing > self.allowed_missing:
            found.append(
                f"{_records(self.missing)} came never, {self.allowed_missing} may be missing: "
                f"{_some(self.missing)}"
            )
        if self.foreign:
            found.append(f"{_records(self.foreign)} are not in the input: {_some(self.foreign)}")
        return found + [f"transaction {each}" for each in self.mismatches]

    @property
    def lines(self) -> list[str]:
        """The verdict for people."""
        lines = [f"{self.rows:,} rows, {self.decisions:,} decisions"]
        if self.with_lineage:
            missing = sum(each.records for each in self.missing)
            lines[0] += f", {self.inputs:,} input records"
            lines.append(f"{missing:,} missing, {self.dropped:,} dropped as repetitions")
        if self.pending:
            lines.append(f"{self.pending} decided transactions are not committed yet")
        if not self.has_all_decisions:
            lines.append(
                "older decisions are compacted: rows of their transactions are not checked"
            )
        verdict = {0: "no fault found", NOTHING: "there is no output to verify"}
        return lines + (self.problems or [verdict[self.exit_code]])

    @property
    def exit_code(self) -> int:
        """0: no fault, 3: faults, 4: no output to verify."""
        if self.problems:
            return ANOMALIES
        return 0 if self.rows and (self.with_lineage or self.decisions) else NOTHING


def _records(ranges: Sequence[RecordRange]) -> str:
    return f"{sum(each.records for each in ranges):,} input records"


def _some(ranges: Sequence[RecordRange]) -> str:
    more = len(ranges) - _SHOWN
    return ", ".join(map(str, ranges[:_SHOWN])) + (f" and {more} more ranges" if more > 0 else "")


def compare_decisions(
    decisions: Iterable[CommittedDecision],
    found: Mapping[Identity, int],
    *,
    pending: Collection[Identity],
    known_later: Collection[Identity],
    has_all: bool,
) -> list[Mismatch]:
    """Return the transactions whose rows in the output differ from their decisions.

    `pending` are decided and still open; `known_later` were decided after the output was read.
    """
    mismatches = []
    stored = list(decisions)
    excused = _given_up(stored) | set(pending)
    decided = set(excused)
    for _, decision, _ in stored:
        for winner in decision.winners:
            decided.add(winner.ongoing)
            rows = found.get(winner.ongoing, 0)
            if rows != winner.rows and winner.ongoing not in excused:
                mismatches.append(
                    Mismatch(
                        *winner.ongoing,
                        winner.transactional_id,
                        decision.number,
                        winner.rows,
                        rows,
                    )
                )
    if has_all:
        mismatches += [
            Mismatch(*identity, None, None, None, rows)
            for identity, rows in sorted(found.items())
            if identity not in decided and identity not in known_later
        ]
    return mismatches


def _given_up(decisions: Sequence[CommittedDecision]) -> set[Identity]:
    """Return the transactions whose loss an operator accepted, or whose decision was taken back."""
    given_up: set[Identity] = set()
    last: int | None = None
    for _, decision, _ in reversed(decisions):
        given_up |= {each.ongoing for each in decision.lost}
        if last is not None and decision.number > last:
            given_up |= {each.ongoing for each in decision.winners}
        last = decision.number
    return given_up


# -- reading ---------------------------------------------------------------------------------------


async def verify(
    cluster: Cluster,
    job: Job,
    checkpoint: Checkpoint | None,
    allowed_missing: int | None,
) -> Verdict:
    """Read input, output and decisions of a job, and compare them.

    The job may run meanwhile. Raises KafkaError, and ValueError for headers that are no lineage.
    """
    sink_id = job.sink_id
    pending = {
        Identity(row.producer_id, row.producer_epoch)
        for row in await TransactionAdmin(cluster).open_under(f"{sink_id}.")
    }
    reader = DecisionReader(cluster, sink_id)
    decisions = await reader.more()
    output = _Output()
    for topic in job.topics:
        for partition, bounds in (await bounds_of(cluster, topic)).items():
            await output.read(cluster, partition, bounds)
    later = {winner.ongoing for each in await reader.more() for winner in each.decision.winners}
    inputs: dict[TopicPartition, Bounds] = {}
    for topic in await input_topics(cluster, job):
        inputs |= await bounds_of(cluster, topic)
    for partition, bounds in inputs.items():
        await _read_input(cluster, job, partition, bounds, output.lineage)
    due = _due(job, checkpoint, inputs, output.lineage)
    lineage = output.lineage if job.lineage else Lineage()
    decided = {winner.ongoing for each in decisions for winner in each.decision.winners}
    return Verdict(
        job=job.name,
        rows=output.rows,
        with_lineage=lineage.outputs,
        inputs=lineage.inputs,
        repeated=lineage.repeated(),
        missing=lineage.missing(due),
        dropped=lineage.dropped(due),
        foreign=lineage.foreign({each: bounds.start for each, bounds in inputs.items()}),
        decisions=len(decisions),
        has_all_decisions=not reader.has_gaps,
        mismatches=compare_decisions(
            decisions,
            output.by_producer,
            pending=pending,
            known_later=later,
            has_all=not reader.has_gaps and bool(decisions),
        ),
        pending=len(pending & decided),
        allowed_missing=allowed_missing if job.lineage else None,
    )


class _Output:
    """The committed records of a job's topics."""

    def __init__(self) -> None:
        self.rows = 0
        self.by_producer: Counter[Identity] = Counter()
        self.lineage = Lineage()

    async def read(self, cluster: Cluster, partition: TopicPartition, bounds: Bounds) -> None:
        async for fetched in read_range(cluster, partition, *bounds):
            for pos, header in fetched.visible:
                records = list(iter_records(fetched.data, pos, header))
                self.rows += len(records)
                if header.is_transactional:
                    identity = Identity(header.producer_id, header.producer_epoch)
                    self.by_producer[identity] += len(records)
                for record in records:
                    value = dict(record.headers).get(LINEAGE_HEADER)
                    if value is not None:
                        self.lineage.wrote(partition.topic, read_places(value))


async def _read_input(
    cluster: Cluster, job: Job, partition: TopicPartition, bounds: Bounds, lineage: Lineage
) -> None:
    columns = job.unique_columns
    async for fetched in read_range(cluster, partition, *bounds):
        for pos, header in fetched.visible:
            for record in iter_records(fetched.data, pos, header):
                place = InputPlace(*partition, record.offset)
                lineage.read(place, _key(record.value, columns) if columns else None)


def _key(value: bytes | None, columns: Sequence[str]) -> Hashable:
    """Return the columns of a JSON value; None if it has none of them."""
    try:
        data = json.loads(value or b"")
        return json.dumps([data[name] for name in columns])
    except (KeyError, TypeError, ValueError):
        return None


def _due(
    job: Job,
    checkpoint: Checkpoint | None,
    inputs: Mapping[TopicPartition, Bounds],
    lineage: Lineage,
) -> dict[Partition, range]:
    """Return the offsets that must be in the output.

    They end where the checkpoint says, else at the last that is in the output; they begin at the
    first one, unless the job reads from the earliest on.
    """
    due: dict[Partition, range] = {}
    earliest = {"startingOffsets": "earliest"}.items()
    for partition, bounds in inputs.items():
        from_start = any(
            earliest <= source.options.items()
            and (partition.topic in (source.topics or ()) or source.matches(partition.topic))
            for _, source in job.inputs
        )
        seen = lineage.seen(partition)
        start = bounds.start if from_start else seen.start
        end = seen.stop if checkpoint is None else checkpoint.offsets.get(partition, 0)
        if from_start or len(seen):
            due[partition] = range(start, end)
    return due
