"""The checks across brokers: replicas in sync (C13), equal replicas (C14), known topics (C17)."""

from collections.abc import Iterator

from barnabas.verify.checks.anomaly import Anomaly
from barnabas.verify.run import ReplicaBatch, Run


def replicas_recover(run: Run) -> Iterator[Anomaly]:
    """C13: by the deadline every partition has a leader again and all its replicas in sync."""
    for at, leader, in_sync, replicas in run.lacking:
        if at is None:
            who = "no broker" if leader < 0 else f"broker {leader}"
            text = (
                f"{who} could name the leaders" if leader < 0 else f"{who} does not know all topics"
            )
            yield Anomaly("C13", "no-metadata", text)
        elif leader not in in_sync:
            text = f"leader {leader}, in sync {in_sync} of {replicas}"
            yield Anomaly("C13", "no-leader", text, at)
        else:
            text = f"leader {leader}, in sync {in_sync} of {replicas}"
            yield Anomaly("C13", "under-replicated", text, at)


def replicas_agree(run: Run) -> Iterator[Anomaly]:
    """C14: all in-sync replicas have the same batches up to the high watermark.

    Leader epochs and CRCs must be equal too, and consumers must be able to read the batches.
    """
    for replica in run.replicas.values():
        for at, end in replica.ends.items():
            if end.offset < end.wanted:
                text = f"broker {replica.node} shows {end.offset} of {end.wanted}"
                text += f": {end.error}" if end.error else ""
                yield Anomaly("C14", "replica-short", text, at, end.offset)
    partitions = sorted({at for replica in run.replicas.values() for at in replica.batches})
    for at in partitions:
        if not run.is_compacted(at[0]):
            yield from _differences(run, at)


def _differences(run: Run, at: tuple[str, int]) -> Iterator[Anomaly]:
    """Compare each broker with the first one, up to the lower of their two ends."""
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
        return "no batch"
    if batch.crc < 0:
        return "a damaged batch"
    return f"{batch.size} bytes of epoch {batch.leader_epoch}, CRC {batch.crc:08x}"


def no_topic_denied(run: Run) -> Iterator[Anomaly]:
    """C17: a topic stays known to a broker that knew it, also after restarts of the broker.

    Otherwise clients drop their sequences of the topic, and later get sequence errors.
    """
    known: set[tuple[int, str]] = set()
    for view in run.views:
        for name in view.unknown:
            if (view.node, name) in known:
                text = f"broker {view.node} knew {name}, then denied it"
                yield Anomaly("C17", "denied-topic", text)
        known.update((view.node, name) for name in view.known)
