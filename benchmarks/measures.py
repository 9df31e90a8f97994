"""CPU time and memory of processes by the kernel's accounting, and figures made of times."""

import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

HERE = Path(__file__).parent
PAGES: Final = tomllib.loads((HERE / "pages.toml").read_text())
TABLES: Final = tomllib.loads((HERE / "tables.toml").read_text())
SIZES: Final = tomllib.loads((HERE / "sizes.toml").read_text())
SETTINGS: Final = tomllib.loads((HERE / "settings.toml").read_text())
"""The sentences of the pages, their tables and aims, the sizes of the loads, and the settings of
brokers and clients."""
Figures = dict[str, float]
Round = dict[str, Figures]
"""Figures of one system by the name of the measurement."""

_TICKS = 100
_ENDED = slice(13, 15)
"""Fields of /proc/<pid>/stat, counted from the end of the command's name: user and system time of
the children that have ended."""
_SCHEDULED = 2
"""The clock of a process that counts its time on a CPU (CPUCLOCK_SCHED in the kernel)."""


class Faulty(Exception):
    """A run has shown a fault."""


class Cost:
    """The seconds of a `with` block, and the CPU seconds of some processes meanwhile."""

    seconds = cpu = 0.0

    def __init__(self, *pids: int) -> None:
        self._pids = pids

    def __enter__(self) -> Self:
        self._before, self._began = sum(map(cpu_seconds, self._pids)), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu = sum(map(cpu_seconds, self._pids)) - self._before

    def of(self, count: float) -> Figures:
        """Return the figures of one of so many requests."""
        return {"cpu_us": self.cpu / count * 1e6, "per_s": count / self.seconds}


def percentiles(taken: Sequence[float], unit: str, name: str = "") -> Figures:
    """Return the median and the 99th percentile of seconds in `us` or `ms`; nothing of none."""
    ordered, scale = sorted(taken), {"us": 1e6, "ms": 1e3}[unit]
    at = {"p50": len(taken) // 2, "p99": len(taken) * 99 // 100} if taken else {}
    return {f"{name}{key}_{unit}": ordered[index] * scale for key, index in at.items()}


def shown(value: float | None) -> str:
    """Return a figure with three digits, or nothing."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, its threads and its children so far, in user and kernel mode.

    It is exact to the nanosecond; only that of children that have ended is counted in ticks.
    """
    return sum(_running_s(each) + _ended_s(each) for each in _tree(pid))


def _running_s(pid: int) -> float:
    """Return the CPU time of all threads of a process, also of those that have ended."""
    with suppress(OSError):
        return time.clock_gettime_ns((~pid << 3) | _SCHEDULED) / 1e9
    return 0.0  # the process has ended: its parent counts its time


def _ended_s(pid: int) -> float:
    """Return the CPU time of the children of a process that have ended."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[_ENDED])) / _TICKS
    return 0.0


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its children."""
    return sum(_memory(each, "VmRSS") for each in _tree(pid))


def reset_peaks(pid: int) -> None:
    """Let the peaks of a process and its children begin anew."""
    for each in _tree(pid):
        with suppress(OSError):
            Path(f"/proc/{each}/clear_refs").write_text("5")


def peak_bytes(pid: int) -> int:
    """Sum of the peaks of the resident memory of a process and of its children that run."""
    return sum(_memory(each, "VmHWM") for each in _tree(pid))


def _memory(pid: int, field: str) -> int:
    """Return a field of /proc/<pid>/status in bytes, 0 if the process has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024
    return 0


def descriptors(pid: int) -> int:
    """Return the number of open files and sockets of a process."""
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


def settled(*pids: int, seconds: float = 2.0, deadline_s: float = 30.0) -> None:
    """Return when processes are idle: less than 5 % of a core over `seconds`."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        with Cost(*pids) as cost:
            time.sleep(seconds)
        if cost.cpu < 0.05 * seconds * len(pids):
            return


def children(pid: int) -> list[int]:
    """Return the child processes of a process; none if it has ended."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for child in children(pid):
        yield from _tree(child)
