"""A crowd that never authenticates costs little, stops no client, and is gone soon.

It is the short form of `python -m tests.support.strangers 2000`, whose figures are in
docs/SECURITY.md.
"""

from pathlib import Path

from tests.support.stranger_loads import PER_SECOND
from tests.support.strangers import cost_of

LONGEST_MS = 50
"""CPU time of an iteration of the event loop, which other processes do not change."""
UNDISTURBED_MS = 50
"""The machine of a test run has no core to spare for the crowd."""


def test_crowd_before_authentication_costs_little_and_is_gone(tmp_path: Path) -> None:
    cost = cost_of(tmp_path, 400, 2, **{"connections.max.unauthenticated.ms": "5000"})
    assert cost.memory_mb < 30
    # The handshake of TLS has a time of its own, of 10 s.
    assert cost.stood_s < 15
    longest = 2 * max(cost.calm_p99_ms, cost.calm_after_p99_ms) + UNDISTURBED_MS
    assert cost.coming_p99_ms < longest
    assert cost.standing_p99_ms < longest
    assert cost.storm_p99_ms < longest
    assert cost.storm_per_s > PER_SECOND / 2
    assert cost.handshakes_per_s > 0
    assert cost.loop_work_ms < LONGEST_MS
