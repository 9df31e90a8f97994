"""The program in `go/`, which uses franz-go: built once, from the Go module proxy."""

import fcntl
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

from tests.support.kafka.jars import CACHE

SOURCES = Path(__file__).parent / "go"
_FILES = sorted(each for each in SOURCES.iterdir() if each.suffix in (".go", ".mod", ".sum"))
# Since this version Go fetches the newer version that a module asks for.
_OLDEST = (1, 21)


def why_not() -> str | None:
    """Return the reason why the program cannot be built here; None if it can."""
    if shutil.which("go") is None:
        return "`go` is not installed, and franz-go needs it"
    told = subprocess.run(["go", "version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"go(\d+)\.(\d+)", told)
    if found and (int(found[1]), int(found[2])) < _OLDEST:
        return f"franz-go needs Go {_OLDEST[0]}.{_OLDEST[1]} or newer: {told.strip()}"
    return None


def program() -> Path:
    """Return the path of the program, which is built on the first call."""
    state = hashlib.sha256(b"".join(each.read_bytes() for each in _FILES))
    binary = CACHE / f"franz-{state.hexdigest()[:16]}"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            subprocess.run(["go", "build", "-o", str(binary), "."], cwd=SOURCES, check=True)
    return binary
