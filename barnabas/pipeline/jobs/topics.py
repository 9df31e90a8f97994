"""The topics of a job in the cluster."""

import asyncio
from collections.abc import Sequence

from barnabas.client.cluster import UNKNOWN_TOPIC_PATIENCE, Cluster
from barnabas.pipeline.jobs.spec import Job, Location, Problem, near
from barnabas.protocol.backoff import Backoff


async def input_topics(cluster: Cluster, job: Job) -> Sequence[str]:
    """Return the topics that a job reads."""
    known = await _topics(cluster) if any(each.pattern for _, each in job.inputs) else ()
    found: dict[str, None] = {}
    for _, source in job.inputs:
        found |= dict.fromkeys(source.topics or filter(source.matches, known))
    return list(found)


async def missing_topics(cluster: Cluster, job: Job) -> list[Problem]:
    """Return a fault for each topic of a job that is not there, with the nearest one.

    Topics that are missing are looked up again for a moment.
    """
    wanted: list[tuple[Location, str]] = [
        *(
            ((*location, "topic"), name)
            for location, source in job.inputs
            for name in source.topics or ()
        ),
        *(
            (("tables", index, "topic"), name)
            for index, table in enumerate(job.tables)
            for name in table.topics or ()
        ),
        *(((*location, "topic"), sink.topic) for location, sink in job.outputs),
        *([(("bad_records",), job.bad_topic)] if job.bad_topic else []),
    ]
    loop = asyncio.get_running_loop()
    deadline, backoff = loop.time() + UNKNOWN_TOPIC_PATIENCE, Backoff()
    while True:
        problems = _missing(await _topics(cluster), wanted)
        if not problems or loop.time() > deadline:
            return problems
        # A topic that was created a moment ago is not known to every broker.
        await asyncio.sleep(backoff.failed())


def _missing(known: Sequence[str], wanted: Sequence[tuple[Location, str]]) -> list[Problem]:
    problems: list[Problem] = []
    for location, name in wanted:
        if name not in known:
            advice = f"barnabas topics create {name}"
            if close := near(name, known):
                advice = f"did you mean {close!r}? Or: {advice}"
            problems.append(Problem(location, f"topic {name} does not exist; {advice}"))
    return problems


async def _topics(cluster: Cluster) -> Sequence[str]:
    await cluster.refresh(None)
    return sorted(each.name for each in cluster.topics.values() if not each.is_internal)
