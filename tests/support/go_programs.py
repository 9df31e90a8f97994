"""Programs in Go, each built once, with its modules from the Go module proxy."""

import fcntl
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

from tests.support.kafka.jars import CACHE

# Since this version Go fetches the newer version that a module asks for.
_OLDEST = (1, 21)


def why_not() -> str | None:
    """Return the reason why no program can be built here; None if one can."""
    if shutil.which("go") is None:
        return "`go` is not installed"
    told = subprocess.run(["go", "version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"go(\d+)\.(\d+)", told)
    if found and (int(found[1]), int(found[2])) < _OLDEST:
        return f"Go {_OLDEST[0]}.{_OLDEST[1]} or newer is needed: {told.strip()}"
    return None


def built(sources: Path, name: str) -> Path:
    """Return the path of the program of a folder, which is built on the first call."""
    files = sorted(each for each in sources.iterdir() if each.suffix in (".go", ".mod", ".sum"))
    state = hashlib.sha256(b"".join(each.read_bytes() for each in files))
    binary = CACHE / f"{name}-{state.hexdigest()[:16]}"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            subprocess.run(["go", "build", "-o", str(binary), "."], cwd=sources, check=True)
    return binary
