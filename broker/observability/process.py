"""What the operating system says of this process, read when it is scraped."""

import os
import resource
import time
from pathlib import Path
from typing import Final

from barnabas.metrics.catalogue import ProcessMetrics

_STATM: Final = Path("/proc/self/statm")
_DESCRIPTORS: Final = Path("/proc/self/fd")


def observe_process(metrics: ProcessMetrics) -> None:
    """Let the process metrics be read; without /proc memory and open files are not reported."""
    metrics.cpu.read_with(time.process_time)
    metrics.start_time.cell().value = time.time()
    metrics.max_files.read_with(lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if _STATM.exists():
        metrics.memory.read_with(_resident_bytes)
        metrics.open_files.read_with(lambda: len(os.listdir(_DESCRIPTORS)))


def _resident_bytes() -> int:
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
