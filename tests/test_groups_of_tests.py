"""Tests of one xdist group run in one worker."""

import pytest


@pytest.mark.xdist_group("a-group")
def test_group_is_part_of_the_test_id_that_xdist_sees(
    request: pytest.FixtureRequest,
) -> None:
    if not request.config.getoption("loadgroup", False):
        pytest.skip("tests are spread by groups with --dist loadgroup alone")
    # pytest-xdist puts the group at the end of the test's id.
    assert request.node.nodeid.endswith("@a-group")
