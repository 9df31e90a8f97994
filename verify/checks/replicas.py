"""What several brokers must agree on at the end: C13 for replicas, C14."""

from collections.abc import Iterator

from barnabas.verify.checks.anomaly import Anomaly
from barnabas.verify.run import ReplicaBatch, Run


def replicas_recover(run: Run) -> Iterator[Anomaly]:
    """C13: within the deadline every partition has a leader again, and all its replicas in sync."""
    for at, leader, in_sync, replicas in run.lacking:
        if at is None:
            who = "no broker" if leader < 0 else f"broker {leader}"
            text = f"{who} could say who leads" if leader < 0 else f"{who} does not know all topics"
            yield Anomaly("C13", "no-metadata", text)
        elif leader not in in_sync:
            text = f"leader {leader}, in sync {in_sync} of {replicas}"
            yield Anomaly("C13", "no-leader", text, at)
        else:
            text = f"leader {leader}, in sync {in_sync} of {replicas}"
            yield Anomaly("C13", "under-replicated", text, at)


def replicas_agree(run: Run) -> Iterator[Anomaly]:
    """C14: every replica in sync has the same batches up to the high watermark, leader epochs and
    CRCs included, and shows them to consumers."""
    for replica in run.replicas.values():
        for at, end in replica.ends.items():
            if end.offset < end.wanted:
                text = f"broker {replica.node} shows {end.offset} of {end.wanted}"
                text += f": {end.error}" if end.error else ""
                yield Anomaly("C14", "replica-short", text, at, end.offset)
    places = sorted({at for replica in run.replicas.values() for at in replica.batches})
    for at in places:
        if not run.is_compacted(at[0]):
            yield from _differences(run, at)


def _differences(run: Run, at: tuple[str, int]) -> Iterator[Anomaly]:
    """Against the first of the brokers; batches are compared up to where both have come."""
    first, *others = sorted(node for node, each in run.replicas.items() if at in each.batches)
    model = run.replicas[first]
    for node in others:
        other = run.replicas[node]
        end = min(model.ends[at].offset, other.ends[at].offset)
        here = _below(model.batches[at], end)
        there = _below(other.batches[at], end)
        for base in sorted(here.keys() | there.keys()):
            if here.get(base) != there.get(base):
                text = f"broker {first} has {_told(here.get(base))}, "
                text += f"broker {node} {_told(there.get(base))}"
                yield Anomaly("C14", "replica-divergence", text, at, base)


def _below(batches: list[ReplicaBatch], end: int) -> dict[int, ReplicaBatch]:
    return {each.base_offset: each for each in batches if each.base_offset < end}


def _told(batch: ReplicaBatch | None) -> str:
    if batch is None:
        return "no batch there"
    if batch.crc < 0:
        return "a damaged batch"
    return f"{batch.size} bytes of epoch {batch.leader_epoch}, CRC {batch.crc:08x}"
