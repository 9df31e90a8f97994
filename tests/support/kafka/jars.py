"""Apache Kafka's own jars, fetched once from Maven Central into `.jars/`.

The list is in `pom.xml`, so that raising the referee's version is one edit. If Java or Maven is
missing, tests that need the referee are skipped with the reason; on CI they fail instead.
"""

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
CACHE = HERE.parents[2] / ".jars"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

_VERSION = re.search(r"<kafka\.version>(.+?)</kafka\.version>", POM.read_text())
assert _VERSION is not None
KAFKA_VERSION = _VERSION[1]


class Unavailable(Exception):
    """The referee cannot run here; the text says what is missing."""


def classpath() -> str:
    """Return the `-cp` argument with all of Kafka's jars; download them on first use.

    Raises Unavailable if Java or Maven is missing or Maven Central cannot be reached.
    """
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise Unavailable(f"`{program}` is not installed, and the referee needs it")
    home = CACHE / f"kafka-{KAFKA_VERSION}"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            _download(home)
    return f"{home}/*"


def _download(home: Path) -> None:
    partial = home.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = ["mvn", "-q", "-B", "-f", str(POM), COPY, "-DincludeScope=runtime"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={partial}"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Unavailable(f"Maven could not fetch Apache Kafka {KAFKA_VERSION}: {done.stdout}")
    partial.rename(home)


def require() -> str:
    """Return the classpath for a test; skip it if the referee is unavailable, fail it on CI."""
    try:
        return classpath()
    except Unavailable as reason:
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(str(reason))
        pytest.skip(str(reason))
