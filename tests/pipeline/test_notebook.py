"""The notebook: its cells run from top to bottom as in Jupyter, with the outputs that it shows."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from docs.build import notebook
from tests.support.command_line import ROOT, environment

pytestmark = [pytest.mark.xdist_group("spark-example"), pytest.mark.timeout(900)]


def comparable(outputs: list[list[dict[str, Any]]]) -> list[str]:
    """Return the outputs without what differs between runs: ports, and the order of records."""
    texts = [re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", json.dumps(each, indent=1)) for each in outputs]
    return ["\n".join(row for row in text.splitlines() if "order_id" not in row) for text in texts]


def test_cells_run_in_order_with_the_stored_outputs(tmp_path: Path) -> None:
    found = notebook.run(
        cwd=tmp_path,
        env=environment(
            SPARK_LOCAL_DIRS=str(tmp_path),
            TMPDIR=str(tmp_path),
            # A short life: compiled code of the first level starts fastest.
            JAVA_TOOL_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            PYTHONPATH=str(ROOT),
        ),
        timeout=850,
    )
    assert found[-2][0]["data"]["text/plain"] == ["'11 minutes, 539 orders, each once'"]
    assert comparable(found) == comparable(notebook.stored())
