"""The figures that the benchmarks print: rates, and percentiles of latencies."""

from collections.abc import Sequence

from barnabas.operations.answers.benchmark import Phase, Rates


def rates(
    phase: Phase, records: int, size: int, seconds: float, latencies: Sequence[float] = ()
) -> Rates:
    """Return the rates of a phase; `size` is in bytes, and latencies are in s."""
    p50_ms, p99_ms = percentiles(latencies)
    return Rates(
        phase=phase,
        records=records,
        seconds=round(seconds, 3),
        records_per_s=round(records / seconds),
        mb_per_s=round(size / seconds / 1e6, 1),
        p50_ms=p50_ms,
        p99_ms=p99_ms,
    )


def percentiles(latencies: Sequence[float]) -> tuple[float, float] | tuple[None, None]:
    """Return p50 and p99 in ms of latencies in s; None without any."""
    ordered = sorted(latencies)
    if not ordered:
        return None, None
    p50, p99 = (round(ordered[len(ordered) * each // 100] * 1000, 2) for each in (50, 99))
    return p50, p99
