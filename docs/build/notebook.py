"""Run docs/pipeline.ipynb as Jupyter does, and store its outputs: `python -m docs.build.notebook`.

A cell may await, and its output is what it prints and the value of its last expression. The log of
Spark on the standard error is left out. It needs the extra `spark`, and Java.
"""

import ast
import asyncio
import inspect
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "pipeline.ipynb"


def stored() -> list[list[dict[str, Any]]]:
    """Return the outputs of each cell of code as the notebook has them."""
    return [cell["outputs"] for cell in _code(json.loads(NOTEBOOK.read_text()))]


def run(**options: Any) -> list[list[dict[str, Any]]]:
    """Return the outputs of each cell of code from a run in a process of its own.

    `options` are those of subprocess.run(). Raises CalledProcessError if a cell fails.
    """
    with tempfile.TemporaryDirectory() as directory:
        result = Path(directory, "outputs.json")
        command = [sys.executable, "-m", "docs.build.notebook", str(result)]
        subprocess.run(command, check=True, **options)
        outputs: list[list[dict[str, Any]]] = json.loads(result.read_text())
        return outputs


def _code(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


async def _run_cells() -> list[list[dict[str, Any]]]:
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = ["".join(cell["source"]) for cell in _code(json.loads(NOTEBOOK.read_text()))]
    return [await _run_cell(cell, number, names) for number, cell in enumerate(cells, 1)]


async def _run_cell(source: str, number: int, names: dict[str, Any]) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with tempfile.TemporaryFile() as printed:
        # Of the process, not of sys.stdout: programs that a cell runs print too.
        terminal = os.dup(1)
        os.dup2(printed.fileno(), 1)
        try:
            await _evaluate(tree, "exec", names)
            value = None
            if isinstance(last, ast.Expr):
                value = await _evaluate(ast.Expression(last.value), "eval", names)
        finally:
            sys.stdout.flush()
            os.dup2(terminal, 1)
            os.close(terminal)
        printed.seek(0)
        text = printed.read().decode()
    outputs: list[dict[str, Any]] = []
    if text:
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(text)})
    if value is not None:
        shown = {"text/plain": _lines(repr(value))}
        outputs.append({"data": shown, "execution_count": number, "metadata": {}})
        outputs[-1]["output_type"] = "execute_result"
    return outputs


async def _evaluate(tree: ast.Module | ast.Expression, mode: str, names: dict[str, Any]) -> Any:
    code = compile(tree, "cell", mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    value = eval(code, names)
    return await value if inspect.isawaitable(value) else value


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _write() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    for number, (cell, outputs) in enumerate(zip(_code(notebook), run(), strict=True), 1):
        cell |= {"execution_count": number, "outputs": outputs}
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    if sys.argv[1:]:
        Path(sys.argv[1]).write_text(json.dumps(asyncio.run(_run_cells())))
    else:
        _write()
