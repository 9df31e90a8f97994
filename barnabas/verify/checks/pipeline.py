"""The checks of consume-transform-produce (C10) and of dependency cycles (C11)."""

from collections import defaultdict
from collections.abc import Iterator

from barnabas.verify.checks.anomaly import Anomaly
from barnabas.verify.history import Partition
from barnabas.verify.run import OperationOutcome, Run


def each_input_once(run: Run) -> Iterator[Anomaly]:
    """C10: the output of a stage has each of its inputs exactly once."""
    if not run.has_final_reads:
        return
    ends = {(seen.group, seen.at): seen.offset for seen in run.observations}
    for stage in run.about.get("stages", ()):
        outputs: dict[str, list[tuple[Partition, int, str]]] = defaultdict(list)
        inputs: dict[str, tuple[Partition, int]] = {}
        for at, offset, value in run.finally_visible():
            if at[0] == stage["from"]:
                inputs[value] = at, offset
            elif at[0] == stage["to"] and value in run.writes:
                source = run.writes[value].source
                if source is not None:
                    outputs[source].append((at, offset, value))
        for source, made in outputs.items():
            if len(made) > 1:
                text = f"{source} was processed into " + ", ".join(each[2] for each in made)
                yield Anomaly("C10", "processed-twice", text, made[1][0], made[1][1])
            if source not in inputs:
                text = f"{made[0][2]} was made from {source}, which is not committed"
                yield Anomaly("C10", "processed-uncommitted", text, made[0][0], made[0][1])
        for value, (at, offset) in inputs.items():
            end = ends.get((stage["group"], at))
            if end is None:
                continue
            if offset < end and value not in outputs:
                text = f"{stage['group']} is at {end}, and nothing was made from {value}"
                yield Anomaly("C10", "processed-never", text, at, offset)
            if offset >= end and value in outputs:
                text = f"{stage['group']} is at {end}, and {outputs[value][0][2]} exists already"
                yield Anomaly("C10", "torn", text, at, offset)


def no_cycles(run: Run) -> Iterator[Anomaly]:
    """C11: no transaction depends on itself through the reads of others (G1c)."""
    edges: dict[str, set[str]] = defaultdict(set)
    for read in run.reads:
        if read.txn is None or not read.committed:
            continue
        for _, value in read.records:
            write = run.writes.get(value)
            if write is not None and write.txn is not None and write.txn != read.txn:
                edges[write.txn].add(read.txn)
    for write in run.writes.values():
        source = run.writes.get(write.source) if write.source is not None else None
        if source is not None and source.txn is not None and write.txn is not None:
            edges[source.txn].add(write.txn)
    committed = {name for name in run.txns if run.outcome(name) is OperationOutcome.COMMITTED}
    for circle in _cycles(edges):
        if committed.issuperset(circle):
            yield Anomaly("C11", "G1c", "each read from the next: " + ", ".join(sorted(circle)))


def _cycles(edges: dict[str, set[str]]) -> Iterator[list[str]]:
    """Yield the strongly connected components of at least two nodes (Tarjan, not recursive)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    stacked: set[str] = set()
    for root in list(edges):
        if root in index:
            continue
        work = [(root, iter(sorted(edges.get(root, ()))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        stacked.add(root)
        while work:
            node, children = work[-1]
            child = next(children, None)
            if child is None:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    circle = []
                    while True:
                        member = stack.pop()
                        stacked.discard(member)
                        circle.append(member)
                        if member == node:
                            break
                    if len(circle) > 1:
                        yield circle
            elif child not in index:
                index[child] = low[child] = len(index)
                stack.append(child)
                stacked.add(child)
                work.append((child, iter(sorted(edges.get(child, ())))))
            elif child in stacked:
                low[node] = min(low[node], index[child])
