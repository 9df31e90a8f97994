"""The wait before an attempt is repeated."""

import pytest

from barnabas.protocol.backoff import Backoff, wait_after


def test_wait_doubles_up_to_the_longest_and_begins_again_after_a_success() -> None:
    backoff = Backoff(0.25, 1.5)
    assert [backoff.failed() for _ in range(5)] == [0.25, 0.5, 1.0, 1.5, 1.5]
    backoff.failures = 0
    assert backoff.wait == backoff.failed() == 0.25


@pytest.mark.parametrize("failures", [40, 10_000])
def test_thousands_of_failures_have_the_longest_wait(failures: int) -> None:
    assert wait_after(failures, 0.05, 1.0) == 1.0
