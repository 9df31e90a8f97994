"""Tests that share something costly or alone share a worker, too."""

import pytest


@pytest.mark.xdist_group("a-group")
def test_a_group_reaches_those_who_spread_tests_over_workers(
    request: pytest.FixtureRequest,
) -> None:
    if not request.config.getoption("loadgroup", False):
        pytest.skip("tests are spread by groups with --dist loadgroup alone")
    # How pytest-xdist tells them: at the end of the test's id.
    assert request.node.nodeid.endswith("@a-group")
