"""The figures that the benchmarks print: rates, and percentiles of latencies."""

from typing import Any


def rates(phase: str, records: int, size: int, seconds: float) -> dict[str, Any]:
    """Return a row with records and bytes by second; `size` is in bytes."""
    return {
        "phase": phase,
        "records": records,
        "seconds": round(seconds, 3),
        "records_per_s": round(records / seconds),
        "mb_per_s": round(size / seconds / 1e6, 1),
    }


def percentiles(latencies: list[float]) -> dict[str, float]:
    """Return p50 and p99 in ms of latencies in s."""
    ordered = sorted(latencies)
    return {
        f"p{percent}_ms": round(ordered[len(ordered) * percent // 100] * 1000, 2)
        for percent in (50, 99)
        if ordered
    }
