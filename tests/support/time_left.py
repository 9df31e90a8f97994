"""The time of a run of tests, which CI bounds."""

import os
import time
from typing import Final

UNTIL: Final = "BARNABAS_TESTS_UNTIL"
"""The Unix time in seconds after which no test begins."""
GRACE_S: Final = 600
"""The seconds for which a test may go on after that time."""


def until() -> float:
    """Return the Unix time in seconds after which no test begins."""
    return float(os.environ.get(UNTIL, "inf"))


def allowed_s(timeout: float) -> float:
    """Return how many seconds a test that begins now may take, whose own timeout is given."""
    return max(1, min(timeout, until() + GRACE_S - time.time()))
