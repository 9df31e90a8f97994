"""A JVM that runs Java clients and Kafka's tools, many in one process (`java/*.java`)."""

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.referee.jars import CACHE, HERE, require
from tests.referee.kafka import java
from tests.referee.resident import Resident

SOURCES = sorted((HERE / "java").glob("*.java"))


def start(errors: Path) -> Resident:
    """A JVM that waits for orders; the test is skipped, on CI failed, where Java is missing."""
    return Resident(program("Resident"), errors)


def program(main: str) -> list[str]:
    """The command line of one of the programs in `java/`, as `start` skips or fails the test."""
    return [*java(f"{_classes(require())}:{require()}"), main]


def _classes(classpath: str) -> Path:
    """Where the compiled programs lie; compiled once for each state of their sources."""
    state = hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES))
    home = CACHE / f"classes-{state.hexdigest()[:16]}"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            partial = home.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            command = ["javac", "-proc:none", "-d", str(partial), "-cp", classpath]
            subprocess.run([*command, *map(str, SOURCES)], check=True)
            partial.rename(home)
    return home
