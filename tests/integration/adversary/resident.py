"""What a process holds, from the kernel's accounting."""

from pathlib import Path


def resident_mb(pid: int, kind: str = "VmRSS") -> float:
    """Resident memory in MB; `VmHWM` for the most there ever was."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(kind):
            return int(line.split()[1]) / 1024
    raise ValueError(f"the kernel tells no {kind}")
