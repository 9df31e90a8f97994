"""The notebook: its cells run from top to bottom, and its result is exact."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import environment

pytestmark = [pytest.mark.xdist_group("spark-example"), pytest.mark.timeout(900)]

NOTEBOOK = Path(__file__).parents[2] / "docs" / "pipeline.ipynb"


def test_cells_run_in_order(tmp_path):
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = ["".join(each["source"]) for each in cells if each["cell_type"] == "code"]
    # The value of the last expression of a cell is its output; here only the last but one counts.
    program = tmp_path / "notebook.py"
    program.write_text("\n".join([*code[:-2], *_with_output(code[-2]), code[-1]]))
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=environment(
            SPARK_LOCAL_DIRS=str(tmp_path),
            TMPDIR=str(tmp_path),
            # A short life: compiled code of the first level starts fastest.
            JAVA_TOOL_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        ),
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "11 minutes, 539 orders, each once"


def test_notebook_is_stored_without_outputs():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert not any(each.get("outputs") or each.get("execution_count") for each in cells)


def _with_output(cell: str) -> list[str]:
    *before, last = cell.splitlines()
    return [*before, f"print({last})"]
