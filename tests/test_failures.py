"""Loops over many cases in one test."""

from pathlib import Path

from tests.support.inner_pytest import printed

THREE_ROUNDS = """
from tests.support.failures import Failures

def test_rounds():
    with Failures() as failures:
        for name in ("Fetch-v4", "Produce-v9", "EndTxn-v3"):
            with failures.of(name):
                assert not name.startswith(("Fetch", "End")), f"bytes of {name}"
"""


def test_every_round_that_fails_is_named_with_its_error(tmp_path: Path) -> None:
    found = printed(tmp_path, THREE_ROUNDS)
    assert "ExceptionGroup: failed: Fetch-v4, EndTxn-v3 (2 sub-exceptions)" in found
    assert "AssertionError: bytes of Fetch-v4" in found
    assert "AssertionError: bytes of EndTxn-v3" in found
    assert "Produce-v9 (" not in found
    assert "1 failed" in found
