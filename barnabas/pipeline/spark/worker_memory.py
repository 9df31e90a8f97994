"""The garbage collection of Spark's Python workers.

PySpark calls `gc.collect()` whenever a task or a call next to the driver ends, before the worker
takes the next one. The modules of a worker are about 110,000 objects: to look at all of them takes
30 ms of CPU, and a batch of 4 tasks has 10 such collections.
"""

import gc
from collections import Counter
from typing import Final

_CALLS: Final[Counter[str]] = Counter()


def spare_modules(kind: str) -> None:
    """Exempt modules from garbage collection, at the begin of the second call of a kind.

    By then the first call has imported its modules, and PySpark has collected its garbage. Later
    objects are collected as before.
    """
    _CALLS[kind] += 1
    if _CALLS[kind] == 2:
        gc.freeze()
