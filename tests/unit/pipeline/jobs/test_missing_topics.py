"""The topics of a job that are not in the cluster."""

from pathlib import Path
from types import SimpleNamespace

from barnabas.client.cluster import Cluster
from barnabas.pipeline.jobs.reading import read_job
from barnabas.pipeline.jobs.topics import missing_topics

ROOT = Path(__file__).parents[4]


class Answering(Cluster):
    """A cluster whose Metadata names these topics, in turn; the last answer stays."""

    def __init__(self, *answers: set[str]) -> None:
        super().__init__("nowhere:1")
        self._answers = list(answers)

    async def refresh(self, *_: object, **__: object) -> None:  # type: ignore[override]
        names = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        self.topics = {  # type: ignore[assignment]
            each: SimpleNamespace(name=each, is_internal=False) for each in names
        }


async def test_topic_that_one_broker_does_not_know_yet_is_not_missing() -> None:
    """The example ended at its start when the job asked another broker than the one that had just
    created its topics."""
    job = read_job(ROOT / "docs" / "examples" / "orders.yaml").job
    every = {name for _, source in job.inputs for name in source.topics or ()}
    every |= {sink.topic for _, sink in job.outputs} | {job.bad_topic or ""}
    late = max(every)
    assert await missing_topics(Answering(every - {late}, every), job) == []
    (problem,) = await missing_topics(Answering(every - {late}), job)
    assert f"topic {late} does not exist" in problem.text
