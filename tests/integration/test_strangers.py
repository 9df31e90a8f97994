"""A crowd that never authenticates costs little, stops no client, and is gone soon."""

from pathlib import Path

from tests.support.strangers import PER_SECOND, cost_of


async def test_crowd_before_authentication_costs_little_and_is_gone(tmp_path: Path) -> None:
    cost = await cost_of(tmp_path, 400, 1, **{"connections.max.unauthenticated.ms": "5000"})
    assert cost.memory_mb < 60
    assert cost.gone_s < 20
    # The machine of a test run has no core to spare for the crowd.
    assert cost.beside_p99_ms < 2 * cost.alone_p99_ms + 50
    assert cost.storm_p99_ms < 2 * cost.alone_p99_ms + 50
    assert cost.storm_per_s > PER_SECOND / 4
