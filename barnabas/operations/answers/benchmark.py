"""The answers of `barnabas benchmark`."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from barnabas.operations.answers.model import Answer

Phase = Literal["produce", "consume", "eos"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates(Answer):
    """The rates of a phase."""

    phase: Phase
    records: int
    seconds: float
    """The duration of the phase."""
    records_per_s: int
    mb_per_s: float
    """Megabytes (1,000,000 bytes) of keys and values by second."""
    p50_ms: float | None = None
    """The median latency of a record, with eos that of a commit; null for consume."""
    p99_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceFigures(Rates):
    """The figures of producing, or of consuming again; those of transactions are null without."""

    transactions: int | None = None
    commit_p50_ms: float | None = None
    commit_p99_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EosFigures(Rates):
    """The figures of consuming and producing in transactions."""

    transactions: int
    transactions_per_s: float
    requests_per_transaction: float | None
    """Requests of the producer and of the group; null without a transaction."""
    retries: int


ANSWERS: Final[dict[str, Any]] = {
    "benchmark produce": list[ProduceFigures],
    "benchmark eos": EosFigures,
}
