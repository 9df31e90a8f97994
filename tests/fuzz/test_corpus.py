"""A replay of the committed corpus: seeds, and inputs that failed before."""

from contextlib import suppress
from pathlib import Path

import pytest

from barnabas.security.sasl.exchange import AuthenticationFailed
from tests.fuzz.seed import seeds
from tests.support.fuzz_targets import TARGETS, run

CORPUS = Path(__file__).parent / "corpus"
CHANGING = {"batches", "columns", "tls", "certificate"}
"""Targets whose seeds depend on the compression library, or are random."""


@pytest.mark.parametrize("target", TARGETS)
def test_only_refusals_escape_on_the_corpus(target: str) -> None:
    inputs = sorted((CORPUS / target).iterdir())
    assert inputs
    for path in inputs:
        run(target, path.read_bytes())


@pytest.mark.parametrize("target", TARGETS)
def test_only_refusals_escape_on_damaged_seeds(target: str) -> None:
    for path in sorted((CORPUS / target).iterdir()):
        data = path.read_bytes()[:300]
        for position in range(0, len(data), max(3, len(data) // 12)):
            for byte in (0, 0x7F, 0x80, 0xFF):
                run(target, data[:position] + bytes([byte]) + data[position + 1 :])
            run(target, data[:position])


def test_seeds_are_whole_messages() -> None:
    for target, name, data in seeds():
        with suppress(AuthenticationFailed):  # the seeds of wrong credentials
            TARGETS[target](data)
        if target not in CHANGING:
            path = CORPUS / target / name
            stored = path.read_bytes() if path.exists() else None
            assert stored == data, f"{target}/{name} is stale: run `python -m tests.fuzz.seed`"
