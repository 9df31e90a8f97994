"""Run docs/pipeline.ipynb with Jupyter's kernel, and store its outputs.

`python -m docs.build.notebook` does it. The log of Spark on the standard error is left out. It
needs the extras `spark` and `test-tools`, and Java.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "pipeline.ipynb"
_VERSION = 4


def code_of(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """Return the cells of code, each with its outputs."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def stored() -> nbformat.NotebookNode:
    """Return the notebook with the outputs that it shows."""
    return nbformat.read(NOTEBOOK, _VERSION)


def run(folder: Path, environment: Mapping[str, str]) -> nbformat.NotebookNode:
    """Return the notebook with the outputs of a run in a folder; raises CellExecutionError."""
    notebook = stored()
    client = NotebookClient(
        notebook,
        timeout=None,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=dict(environment))
    for cell in code_of(notebook):
        cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    # The version of this Python is no property of the notebook.
    notebook.metadata = stored().metadata
    return notebook


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        NOTEBOOK.write_text(nbformat.writes(run(Path(directory), os.environ)) + "\n")
