"""Programs in JavaScript, whose packages come from the npm registry once."""

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.support.kafka.jars import CACHE


def why_not() -> str | None:
    """Return the reason why no program can run here; None if one can."""
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    return f"`{missing[0]}` is not installed" if missing else None


def installed(sources: Path) -> Path:
    """Return a copy of a folder that has its packages, which are fetched on the first call."""
    files = sorted(each for each in sources.iterdir() if each.suffix in (".js", ".json"))
    state = hashlib.sha256(b"".join(each.read_bytes() for each in files))
    copy = CACHE / f"{sources.name}-{state.hexdigest()[:16]}"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not copy.exists():
            new = copy.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            for each in files:
                shutil.copy(each, new)
            npm = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            subprocess.run(npm, cwd=new, check=True, capture_output=True)
            new.rename(copy)
    return copy
