"""The priority of processes beside brokers."""

import os


def yield_to_brokers(niceness: int = 10) -> None:
    """Let brokers on this machine have its cores first: take what they leave, and preempt none.

    Their clients feel a millisecond, which a person who looks at a page does not.
    Not SCHED_IDLE: on a machine that is busy for hours this process would starve.
    """
    if hasattr(os, "nice"):
        os.nice(niceness)
    if hasattr(os, "SCHED_BATCH"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
