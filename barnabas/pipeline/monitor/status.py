"""The status of a job that may run elsewhere: its checkpoint, and its sink in the cluster."""

import time
from collections.abc import Mapping

from barnabas.client.cluster import Cluster
from barnabas.operations.sinks.log import Bounds, DecisionReader, bounds_of
from barnabas.pipeline.jobs.checkpoint import Checkpoint
from barnabas.pipeline.jobs.spec import Job
from barnabas.pipeline.monitor.progress import Progress, Status
from barnabas.pipeline.monitor.sink_state import read_sink_state
from barnabas.pipeline.monitor.view import cluster_rows, figure_rows
from barnabas.protocol.records.group_lag import offset_lag
from barnabas.protocol.topic_partition import TopicPartition

_TAIL = 100


async def read_status(
    cluster: Cluster, job: Job, checkpoint: Checkpoint | None, progress: Progress | None
) -> Status:
    """Return the status of a job, with the progress of its last run. Raises KafkaError."""
    reader = DecisionReader(cluster, job.sink_id, tail=_TAIL)
    state = await read_sink_state(cluster, job.sink_id, reader)
    if checkpoint is None:
        return Status(job.name, job.sink_id, None, None, None, None, state, progress)
    named = {name for _, source in job.inputs for name in source.topics or ()}
    topics = {each.topic for each in checkpoint.offsets} | named
    ends: dict[TopicPartition, Bounds] = {}
    for topic in sorted(topics):
        ends |= await bounds_of(cluster, topic)
    return Status(
        job.name,
        job.sink_id,
        checkpoint.query,
        checkpoint.done,
        checkpoint.begun,
        lag_of(checkpoint.offsets, ends),
        state,
        progress,
    )


def lag_of(read: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, Bounds]) -> int:
    """Return the number of committed offsets that are not read yet."""
    return sum(
        offset_lag(read.get(partition, bounds.start), bounds.end)
        for partition, bounds in ends.items()
    )


def show(status: Status) -> list[tuple[str, str]]:
    """Return the status as names and texts."""
    rows = [("job", status.job), ("sink", status.sink)]
    if status.query is None:
        rows.append(("checkpoint", "not readable here, or the job has never run"))
    else:
        open_batch = "" if status.begun == status.batch else f", batch {status.begun} has begun"
        done = "none" if status.batch == -1 else str(status.batch)
        rows += [
            ("query", status.query),
            ("last batch", f"{done}{open_batch}"),
            ("lag", f"{status.lag:,} offsets"),
        ]
    rows += cluster_rows(status.cluster)
    if (progress := status.progress) is not None:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(progress.at_seconds))
        rows += [("last run", f"{progress.state} at {at}"), *figure_rows(progress)]
        if progress.error:
            rows.append(("error", progress.error))
    return rows
