"""The notebook: its cells run from top to bottom in Jupyter's kernel, with the stored outputs."""

import base64
import json
import re
from pathlib import Path

import nbformat
import pytest

from docs.build import notebook
from tests.support.command_line import ROOT, environment

pytestmark = [pytest.mark.xdist_group("spark-example"), pytest.mark.timeout(900)]

PICTURE = "image/png"


def comparable(shown: nbformat.NotebookNode) -> list[str]:
    """Return the outputs without what differs between runs.

    These are ports, the order of records, and the points of pictures.
    """
    texts = []
    for cell in notebook.code_of(shown):
        text = json.dumps(cell.outputs, indent=1, sort_keys=True)
        text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)
        text = re.sub(rf'("{PICTURE}": )".*"', r"\1", text)
        texts.append("\n".join(row for row in text.splitlines() if "order_id" not in row))
    return texts


def pictures(shown: nbformat.NotebookNode) -> list[bytes]:
    return [
        base64.b64decode(output["data"][PICTURE])
        for cell in notebook.code_of(shown)
        for output in cell.outputs
        if PICTURE in output.get("data", {})
    ]


def test_cells_run_in_order_with_the_stored_outputs(tmp_path: Path) -> None:
    variables = environment(
        SPARK_LOCAL_DIRS=str(tmp_path),
        TMPDIR=str(tmp_path),
        # A short life: compiled code of the first level starts fastest.
        JAVA_TOOL_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        PYTHONPATH=str(ROOT),
    )
    # With this variable Jupyter's kernel does not show what other processes print.
    variables.pop("PYTEST_CURRENT_TEST", None)
    found = notebook.run(tmp_path, variables)
    last = notebook.code_of(found)[-2].outputs[0]
    assert last["data"]["text/plain"] == "'11 minutes, 539 orders, each once'"
    shown = notebook.stored()
    assert comparable(found) == comparable(shown)
    for each in (*pictures(found), *pictures(shown)):
        assert each.startswith(b"\x89PNG")
    assert len(pictures(found)) == len(pictures(shown)) == 2
