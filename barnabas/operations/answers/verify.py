"""The answers of `barnabas verify`."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from barnabas.operations.answers.model import Answer


@dataclass(frozen=True, slots=True)
class Anomaly(Answer):
    """A violation of a guarantee."""

    check: str
    name: str
    """Jepsen's name, if Jepsen has one."""
    text: str
    at: tuple[str, int] | None
    """Topic and partition."""
    offset: int | None
    """Offset of the anomaly in the log."""


@dataclass(frozen=True, slots=True)
class RunTopic(Answer):
    """A topic of a run."""

    partitions: int
    compacted: bool


@dataclass(frozen=True, slots=True)
class Stage(Answer):
    """A stage of a pipeline, which moves records between two topics."""

    source: str
    target: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Answer):
    """A run: its load, and the settings of the cluster that the checks use; null is unknown."""

    workload: str
    seed: int
    protocol: Literal["newer", "older", "both"] | None = None
    transaction_version: int | None = None
    """The level of the feature transaction.version."""
    timeout_seconds: float
    """The timeout of transactions."""
    ids_kept_seconds: float | None = None
    """The time for which the brokers keep transactional ids."""
    topics: dict[str, RunTopic]
    stages: list[Stage]


@dataclass(frozen=True, slots=True)
class Figures(Answer):
    """The counts of a history."""

    operations: int
    ok: int
    unknown: int
    """Operations whose result is unknown."""
    transactions: int
    committed: int
    aborted: int
    undecided: int
    records: int
    """Records that were sent."""
    reads: int
    """Records that were read."""


@dataclass(frozen=True, slots=True)
class CheckResult(Answer):
    """The result of a check."""

    check: str
    """Its numbers in docs/verify.md."""
    title: str
    count: int
    """The number of anomalies."""
    anomalies: list[Anomaly]
    """The first 100 anomalies."""


@dataclass(frozen=True, slots=True)
class Verdict(Answer):
    """The verdict on a history."""

    verdict: Literal["clean", "anomalies", "void", "unusable"]
    run: Run | None
    """Null for a history that does not begin with its run."""
    figures: Figures
    problems: dict[str, int]
    """Problems that interrupted parts of the run, with their counts."""
    checks: list[CheckResult]


@dataclass(frozen=True, slots=True)
class Comparison(Answer):
    """The comparison of the log directories of brokers."""

    partitions: int
    """Partitions with several replicas in the directories."""
    batches: int
    """Batches that were compared with those of another replica."""
    anomalies: list[Anomaly]


ANSWERS: Final[dict[str, Any]] = {
    "verify eos": Verdict,
    "verify eos check": Verdict,
    "verify replicas": Comparison,
}
