"""The memory of a process, from the kernel's accounting."""

from pathlib import Path


def resident_mb(pid: int, kind: str = "VmRSS") -> float:
    """Return the resident memory in MB; with `VmHWM` its maximum since the start."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(kind):
            return int(line.split()[1]) / 1024
    raise ValueError(f"/proc has no {kind} of the process")
