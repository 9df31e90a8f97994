"""The repository as a commit has it."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def links() -> dict[str, str]:
    """Return the symbolic links of the repository, path and target, whether they are there or not.

    CI deletes them, because nothing may depend on them.
    """
    rows = [line.partition("\t") for line in _git("ls-files", "--stage").splitlines()]
    assert len(rows) > 1000
    return {path: _git("show", f":{path}") for mode, _, path in rows if mode.startswith("120000")}


def _git(*words: str) -> str:
    command = ["git", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
