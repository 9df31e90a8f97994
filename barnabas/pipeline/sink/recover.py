"""The recovery of a sink whose job never comes back, or whose decision could not be carried out.

It carries out the last decision and aborts every other transaction of the sink. A driver that still
runs is fenced. After a loss the operator chooses: `accept` continues without the lost rows,
`rewrite` takes the decision back, so that the job writes the batch again.
"""

from typing import NamedTuple

from barnabas.operations.sinks.decisions import DecidedWinner, SinkDecision
from barnabas.pipeline.sink.port import Fate, FirstRecord, OpenTransaction, SinkPort
from barnabas.pipeline.sink.protocol import (
    Attempt,
    Batch,
    SinkError,
    SinkOutcome,
    SinkSettings,
    decoded,
    finish,
)
from barnabas.protocol.errors import KafkaError


class Recovery(NamedTuple):
    """The result of a recovery; with `dry_run` nothing was changed."""

    sink_id: str
    dry_run: bool
    decision: SinkDecision | None
    """The last decision, as it was found."""
    to_commit: list[DecidedWinner]
    """Transactions of the decision that were open."""
    to_abort: list[OpenTransaction]
    """Open transactions that the decision does not name."""
    lost: list[DecidedWinner]
    unknown: list[DecidedWinner]
    """Transactions of the decision whose outcome the log no longer tells."""
    written: SinkDecision | None = None
    """The decision that `accept` or `rewrite` has written."""

    @property
    def is_whole(self) -> bool:
        """Whether every row of the last decision is visible, or the operator has decided."""
        return self.written is not None or not (self.lost or self.unknown)

    @property
    def lines(self) -> list[str]:
        """The result as text, a line each."""
        will = "would be" if self.dry_run else "were"
        if self.decision is None:
            found = [f"sink {self.sink_id} has decided no batch"]
        else:
            rows = sum(each.rows for each in self.decision.winners)
            found = [
                f"last decision: batch {self.decision.number} of query {self.decision.query_id},"
                f" {len(self.decision.winners)} transactions, {rows} rows"
            ]
        found.append(f"{len(self.to_commit)} of its transactions {will} committed")
        found.append(f"{len(self.to_abort)} other transactions {will} aborted")
        found += [
            f"lost: {each.transactional_id}, {each.rows} rows, the first at {each.first}"
            for each in self.lost
        ]
        found += [
            f"unknown: {each.transactional_id}, {each.rows} rows, the first at {each.first}"
            for each in self.unknown
        ]
        if self.written is not None:
            rewritten = self.decision is None or self.written.number != self.decision.number
            found.append(
                "the decision was taken back: the job writes the batch again"
                if rewritten
                else "the loss was accepted: the job goes on with the next batch"
            )
        elif not self.is_whole:
            found.append(
                "go on without these rows by --accept, or write the batch again by --rewrite"
            )
        return found


async def recover(
    port: SinkPort,
    sink_id: str,
    *,
    dry_run: bool = False,
    accept: bool = False,
    rewrite: bool = False,
) -> Recovery:
    """Carry out the last decision of a sink, and abort its other transactions. Raises SinkError."""
    attempt = Attempt(port, SinkSettings(sink_id, 0), Batch("", -1, None), ())
    try:
        await attempt.list_open()
        stored = await port.last_decision(None)
        if stored is None and not attempt.listed:
            raise SinkError(
                f"sink {sink_id} has no decision and no open transaction: check its name"
            )
        if dry_run:
            attempt.last = None if stored is None else decoded(sink_id, stored.value)
            outcome = await _look_at(port, attempt)
            return _result(attempt, outcome, dry_run=True)
        await _look_back(attempt, SinkDecision("", -1, None, ()), committed=False)
        left_over = attempt.left_over()
        await attempt.clean(attempt.last)
        outcome = await finish(port, attempt.last.winners if attempt.last else ())
        found = _result(attempt, outcome, dry_run=False)._replace(to_commit=left_over)
        if attempt.last is None or found.is_whole or not (accept or rewrite):
            return found
        written = _after_loss(attempt.last, outcome, rewrite=rewrite)
        before = attempt.last
        await _look_back(attempt, written, committed=True, expected=before)
        return found._replace(written=written)
    except KafkaError as error:
        raise SinkError(f"sink {sink_id} is not recovered: {error}. Try again") from error


async def _look_back(
    attempt: Attempt, record: SinkDecision, *, committed: bool, expected: SinkDecision | None = None
) -> None:
    """Read the last decision behind a fence and a record, which is then committed or dropped."""
    await attempt.fence()
    await attempt.write(record)
    attempt.last = None
    await attempt.look_back()
    if expected is not None and attempt.last != expected:
        await attempt.drop()
        raise SinkError(
            f"another driver of sink {attempt.settings.sink_id} has decided meanwhile: stop it"
        )
    await attempt.port.end_decision(committed=committed)


async def _look_at(port: SinkPort, attempt: Attempt) -> SinkOutcome:
    """Return the transactions of the last decision that are not visible and not open."""
    outcome = SinkOutcome([], [])
    if attempt.last is None:
        return outcome
    winners = attempt.last.winners
    fates = await port.fates([FirstRecord(each.first, each.ongoing) for each in winners])
    for winner, fate in zip(winners, fates, strict=True):
        if fate is Fate.ABORTED:
            outcome.lost.append(winner)
        elif fate is Fate.GONE:
            outcome.unknown.append(winner)
    return outcome


def _result(attempt: Attempt, outcome: SinkOutcome, *, dry_run: bool) -> Recovery:
    named = attempt.last.named if attempt.last is not None else frozenset()
    return Recovery(
        attempt.settings.sink_id,
        dry_run,
        attempt.last,
        attempt.left_over(),
        [each for each in attempt.listed if (each.transactional_id, each.ongoing) not in named],
        outcome.lost,
        outcome.unknown,
    )


def _after_loss(last: SinkDecision, outcome: SinkOutcome, *, rewrite: bool) -> SinkDecision:
    """Return the decision that replaces one whose transactions are lost."""
    if rewrite:
        return SinkDecision(last.query_id, last.number - 1, None, ())
    missing = {*outcome.lost, *outcome.unknown}
    return last._replace(
        winners=tuple(each for each in last.winners if each not in missing),
        lost=(*last.lost, *(each for each in last.winners if each in missing)),
    )
