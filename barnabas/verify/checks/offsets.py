"""The check of committed offsets of groups (C15)."""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.verify.checks.anomaly import Anomaly
from barnabas.verify.history import Partition
from barnabas.verify.run import Observation, OperationOutcome, Run


class _Committed(NamedTuple):
    """An offset that a transaction committed, between two lines of the history."""

    ended: int
    asked: int
    offset: int
    txn: str


def offsets_stay(run: Run) -> Iterator[Anomaly]:
    """C15: an OffsetFetch of stable offsets after a commit returns this or a later commit.

    A returned offset never goes back, except by a commit of that lower offset.
    """
    commits = _commits(run)
    seen_by: dict[tuple[str, Partition], list[Observation]] = defaultdict(list)
    for seen in run.observations:
        seen_by[seen.group, seen.at].append(seen)
    for key, told in seen_by.items():
        yield from _stale(commits.get(key, []), told)
        yield from _taken_back(commits.get(key, []), told)


def _stale(commits: list[_Committed], seen: list[Observation]) -> Iterator[Anomaly]:
    known: _Committed | None = None
    waiting = iter(sorted(commits))
    commit = next(waiting, None)
    for each in sorted(seen, key=lambda each: each.invoked):
        while commit is not None and commit.ended < each.invoked:
            if known is None or commit.offset > known.offset:
                known = commit
            commit = next(waiting, None)
        if known is not None and each.offset < known.offset:
            if not _was_set_back(commits, each.offset, known.asked):
                text = f"{each.group} shows {each.offset} after {known.txn} had committed "
                yield Anomaly("C15", "stale-offset", f"{text}{known.offset}", each.at)
            known = None


def _taken_back(commits: list[_Committed], seen: list[Observation]) -> Iterator[Anomaly]:
    highest: Observation | None = None
    for each in sorted(seen, key=lambda each: each.line):
        if highest is None or each.offset >= highest.offset:
            highest = each
        # Two concurrent requests may be answered in either order.
        elif each.invoked > highest.line:
            if not _was_set_back(commits, each.offset, highest.line):
                text = f"{each.group} showed {highest.offset}, then {each.offset}"
                yield Anomaly("C15", "offset-regression", text, each.at)
            highest = each


def _was_set_back(commits: list[_Committed], offset: int, since: int) -> bool:
    return any(each.offset == offset and each.ended > since for each in commits)


def _commits(run: Run) -> dict[tuple[str, Partition], list[_Committed]]:
    commits: dict[tuple[str, Partition], list[_Committed]] = defaultdict(list)
    for txn in run.txns.values():
        if (
            txn.outcome is not OperationOutcome.COMMITTED
            or txn.commit_asked is None
            or txn.ended is None
        ):
            continue
        for commit in txn.commits:
            for at, offset in commit.offsets.items():
                row = _Committed(txn.ended, txn.commit_asked, offset, txn.name)
                commits[commit.group, at].append(row)
    return commits
