"""What the benchmarks print: rates, and latencies by percentile."""

from typing import Any


def rates(phase: str, records: int, size: int, seconds: float) -> dict[str, Any]:
    """Records and bytes of `size` by second."""
    return {
        "phase": phase,
        "records": records,
        "seconds": round(seconds, 3),
        "records/s": round(records / seconds),
        "MB/s": round(size / seconds / 1e6, 1),
    }


def percentiles(latencies: list[float]) -> dict[str, float]:
    """p50 and p99 in ms of latencies in s."""
    ordered = sorted(latencies)
    return {
        f"p{percent} ms": round(ordered[len(ordered) * percent // 100] * 1000, 2)
        for percent in (50, 99)
        if ordered
    }
