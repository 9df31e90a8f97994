"""The wait of `barnabas pipeline example` for the rest of the output, on virtual time."""

import asyncio
import json
from pathlib import Path

import pytest

from barnabas.cli.processes.example import CLOSING_SECONDS, Example, ExampleSettings, prepare
from tests.support.virtual_loop import VirtualLoop

SLOW_START_S = 1000.0


@pytest.fixture
def example(tmp_path: Path) -> Example:
    file = prepare(tmp_path / "example")
    return Example(
        ExampleSettings(tmp_path / "example", "localhost:0", "localhost:0", 1, 10, 10, None), file
    )


def begin_batch(example: Example) -> None:
    """Write what Spark writes before its first batch."""
    root = Path(example._file.checkpoint)
    (root / "offsets").mkdir(parents=True)
    (root / "metadata").write_text(json.dumps({"id": "query"}))
    (root / "offsets" / "0").write_text("v1\n{}\n{}\n")


def test_time_for_the_output_begins_with_the_first_batch(
    example: Example, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = VirtualLoop(0)

    async def run() -> float:
        waiting = asyncio.ensure_future(example._caught_up("unused:1", None))
        await asyncio.sleep(SLOW_START_S)
        assert not waiting.done()
        begin_batch(example)
        began = loop.time()
        await waiting
        return loop.time() - began

    try:
        waited = loop.run_until_complete(run())
    finally:
        loop.close()
    assert CLOSING_SECONDS <= waited <= CLOSING_SECONDS + 2
    assert "the output is not whole after 180 s" in capsys.readouterr().out


def test_report_says_that_spark_starts_until_the_first_batch(example: Example) -> None:
    assert example._report_line() == "0 orders sent, Spark starts"
    begin_batch(example)
    assert example._report_line() == "0 orders sent, the first batch runs"
