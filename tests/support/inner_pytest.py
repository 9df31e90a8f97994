"""pytest on a file of its own, with the settings of every test here."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def printed(directory: Path, tests: str, *options: str) -> str:
    """Return what pytest prints about a module with these tests."""
    (path := directory / "test_inner.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--rootdir", str(directory)]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", *options, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout
