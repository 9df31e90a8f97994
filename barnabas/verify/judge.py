"""The verdict on a history: all checks in order, with their anomalies."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from barnabas.verify.checks.anomaly import Anomaly
from barnabas.verify.checks.brokers import no_topic_denied, replicas_agree, replicas_recover
from barnabas.verify.checks.ending import (
    NO_FINAL_READ,
    no_unjust_refusal,
    no_zombies,
    nothing_hangs,
)
from barnabas.verify.checks.loss import balanced, nothing_lost, nothing_torn
from barnabas.verify.checks.offsets import offsets_stay
from barnabas.verify.checks.order import (
    nothing_shown_early,
    producers_in_order,
    readers_in_order,
    watermarks_grow,
)
from barnabas.verify.checks.pipeline import each_input_once, no_cycles
from barnabas.verify.checks.values import (
    consistent_offsets,
    no_aborted_reads,
    no_duplicates,
    no_early_reads,
)
from barnabas.verify.history import INFO, OK, Event
from barnabas.verify.run import OperationOutcome, Run, load

LISTED: Final = 100
"""The number of anomalies of a check that a report lists; one fault may cause thousands."""
VOID_BELOW: Final = 0.5
"""A run with a lower share of successful operations is void: it proves nothing."""


class Check(NamedTuple):
    """A check with its numbers in the documentation."""

    numbers: str
    title: str
    find: Callable[[Run], Iterator[Anomaly]]


CHECKS: Final = (
    Check("C1", "one value at an offset", consistent_offsets),
    Check("C2", "one offset of a value", no_duplicates),
    Check("C3 C4", "nothing acknowledged is lost", nothing_lost),
    Check("C5", "nothing aborted is read", no_aborted_reads),
    Check("C6", "nothing open is read", no_early_reads),
    Check("C7", "all of a transaction or nothing", nothing_torn),
    Check("C7", "amounts add up to zero", balanced),
    Check("C8", "a producer's order is kept", producers_in_order),
    Check("C9", "readers skip nothing", readers_in_order),
    Check("C10", "each input processed once", each_input_once),
    Check("C11", "no cycle of reads", no_cycles),
    Check("C12", "watermarks only grow", watermarks_grow),
    Check("C12", "consumers see committed records only", nothing_shown_early),
    Check("C13", "no transaction is left open", nothing_hangs),
    Check("C13", "all replicas are in sync again", replicas_recover),
    Check("C14", "replicas are equal", replicas_agree),
    Check("C15", "committed offsets stay", offsets_stay),
    Check("C16", "no producer is refused without reason", no_unjust_refusal),
    Check("C16", "a fenced producer does nothing", no_zombies),
    Check("C17", "no known topic is denied", no_topic_denied),
)


class CheckResult(NamedTuple):
    """The result of one check."""

    check: Check
    total: int
    anomalies: list[Anomaly]
    """The first LISTED anomalies."""


class Verdict(NamedTuple):
    """The results of all checks of a run."""

    run: Run
    found: list[CheckResult]
    figures: dict[str, int]

    @property
    def anomalies(self) -> list[Anomaly]:
        return [anomaly for each in self.found for anomaly in each.anomalies]

    @property
    def is_clean(self) -> bool:
        return not any(each.total for each in self.found)

    @property
    def is_unusable(self) -> bool:
        """Whether no operation succeeded: missing final reads are then no anomaly."""
        if self.is_clean or self.figures["ok"]:
            return False
        return all(anomaly.name == NO_FINAL_READ for anomaly in self.anomalies)

    @property
    def is_void(self) -> bool:
        """Whether too few operations succeeded to prove anything."""
        return self.figures["ok"] < VOID_BELOW * max(self.figures["operations"], 1)


def judge(events: Iterable[Event]) -> Verdict:
    """Run all checks on a history; raises CorruptHistory."""
    run = load(events)
    found = []
    for check in CHECKS:
        anomalies = check.find(run)
        listed = list(islice(anomalies, LISTED))
        found.append(CheckResult(check, len(listed) + sum(1 for _ in anomalies), listed))
    return Verdict(run, found, _figures(run))


def _figures(run: Run) -> dict[str, int]:
    outcomes = Counter(txn.outcome for txn in run.txns.values())
    types = Counter(
        INFO if each.done is None else each.done.type
        for each in run.operations
        if not each.event.value.get("late")
    )
    return {
        "operations": sum(types.values()),
        "ok": types[OK],
        "unknown": types[INFO],
        "transactions": len(run.txns),
        "committed": outcomes[OperationOutcome.COMMITTED],
        "aborted": outcomes[OperationOutcome.ABORTED],
        "undecided": outcomes[OperationOutcome.UNKNOWN],
        "records": len(run.writes),
        "reads": sum(len(read.records) for read in run.reads),
    }
