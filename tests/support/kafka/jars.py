"""Apache Kafka's own jars, fetched once from Maven Central into `.jars/`.

The list is in `pom.xml`, so that raising the referee's version is one edit; `pom-zookeeper.xml` has
the last release whose tools write to ZooKeeper. `REFEREE=4.3.1` or `3.9.1` in the
environment takes that release as referee of the differential test. If Java or Maven is missing,
tests that need the referee are skipped with the reason; on CI they fail instead.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
POM = HERE / "pom.xml"
ZOOKEEPER_POM = HERE / "pom-zookeeper.xml"
CACHE = HERE.parents[2] / ".jars"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def version(pom: Path = POM) -> str:
    """Return the version of Apache Kafka that a list has, or `REFEREE` of the environment."""
    if pom == POM and (other := os.environ.get("REFEREE")):
        return other
    found = re.search(r"<kafka\.version>(.+?)</kafka\.version>", pom.read_text())
    assert found is not None
    return found[1]


def directory(pom: Path = POM) -> Path:
    """Return the directory of the jars of a list; a changed list has another one."""
    state = hashlib.sha256(pom.read_bytes()).hexdigest()[:8]
    return CACHE / f"kafka-{version(pom)}-{state}"


class Unavailable(Exception):
    """The referee cannot run here; the text says what is missing."""


def classpath(pom: Path = POM) -> str:
    """Return the `-cp` argument with all jars of a list; download them on first use.

    Raises Unavailable if Java or Maven is missing or Maven Central cannot be reached.
    """
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise Unavailable(f"`{program}` is not installed, and the referee needs it")
    home = directory(pom)
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            _download(pom, home)
    return f"{home}/*"


def _download(pom: Path, home: Path) -> None:
    partial = home.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = ["mvn", "-q", "-B", "-f", str(pom), COPY, "-DincludeScope=runtime"]
    command.append(f"-Dkafka.version={version(pom)}")
    if pom == POM and version().startswith("3."):
        # Its logging is Log4j 1, whose levels can be altered; of two the first one found counts.
        command.append("-DexcludeArtifactIds=log4j-slf4j-impl,log4j-core,log4j-api")
    done = subprocess.run(
        [*command, f"-DoutputDirectory={partial}"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Unavailable(f"Maven could not fetch Apache Kafka {version(pom)}: {done.stdout}")
    partial.rename(home)


def require(pom: Path = POM) -> str:
    """Return the classpath for a test; skip it if the referee is unavailable, fail it on CI."""
    try:
        return classpath(pom)
    except Unavailable as reason:
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(str(reason))
        pytest.skip(str(reason))
