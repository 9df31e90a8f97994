"""A JVM that runs Java clients and Kafka's tools, many in one process (`java/*.java`)."""

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

from tests.support.kafka.jars import CACHE, HERE, POM, require
from tests.support.kafka.node import SMALL, java
from tests.support.kafka.resident import Resident

OPTIONS = (*SMALL, "--add-opens=java.base/java.lang=ALL-UNNAMED")
"""With the right to see what a thread runs (`Tools.closeClients`)."""
SOURCES = sorted((HERE / "java").glob("*.java"))


def start(errors: Path, pom: Path = POM) -> Resident:
    """Start a JVM that waits for commands; without Java the test is skipped, on CI it fails."""
    return Resident(program("Resident", pom), errors)


def program(main: str, pom: Path = POM) -> list[str]:
    """Return the command line of a program in `java/`, which runs with the jars of a list; skip or
    fail the test as `start` does."""
    return [*java(f"{require(pom)}:{_classes(require())}", OPTIONS), main]


def _classes(classpath: str) -> Path:
    """Return the directory of the compiled programs; compile once for each state of the sources."""
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
