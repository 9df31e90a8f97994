"""Run the tests of formats with a real registry: `python -m tests.support.apicurio [PYTEST...]`.

It is Apicurio, of Maven Central (142 MB, kept in `.jars/`), which speaks Confluent's API below
/apis/ccompat/v7. It needs Java 17, and keeps its schemas in memory.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.kafka.jars import CACHE
from tests.support.ports import free_port
from tests.support.registry import URL

VERSION: Final = "2.6.13.Final"
_ADDRESS: Final = (
    "https://repo1.maven.org/maven2/io/apicurio/apicurio-registry-app/"
    f"{VERSION}/apicurio-registry-app-{VERSION}-all.tar.gz"
)
_PATIENCE_S: Final = 120
TESTS: Final = (
    "tests/unit/registry",
    "tests/integration/test_formats.py",
    "tests/pipeline/test_formats.py",
)


def main() -> int:
    """Run the tests; return the exit code of pytest."""
    with apicurio() as url:
        command = [sys.executable, "-m", "pytest", "-q", *TESTS, *sys.argv[1:]]
        return subprocess.run(command, env={**os.environ, URL: url}, check=False).returncode


@contextmanager
def apicurio() -> Iterator[str]:
    """Start Apicurio; yield the address of its Confluent API."""
    home = _unpacked()
    port = free_port()
    command = [
        *("java", "-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Dquarkus.http.port={port}"),
        *("-Dquarkus.http.host=127.0.0.1", "-Dquarkus.log.level=WARN"),
        *("-jar", f"apicurio-registry-app-{VERSION}-runner.jar"),
    ]
    process = subprocess.Popen(command, cwd=home, stdout=sys.stderr)
    try:
        url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        _wait(process, f"{url}/subjects")
        # It refuses nothing by default.
        _put(f"{url}/config", b'{"compatibility": "BACKWARD"}')
        yield url
    finally:
        process.terminate()
        process.wait(60)


def _unpacked() -> Path:
    home = CACHE / f"apicurio-{VERSION}"
    if home.exists():
        return home
    CACHE.mkdir(exist_ok=True)
    archive, _ = urllib.request.urlretrieve(_ADDRESS)
    with urllib.request.urlopen(f"{_ADDRESS}.sha1") as answer:
        wanted = answer.read().decode().split()[0]
    if hashlib.sha1(Path(archive).read_bytes()).hexdigest() != wanted:
        raise SystemExit("the archive of Apicurio is damaged")
    partial = home.with_suffix(".partial")
    with tarfile.open(archive) as tar:
        tar.extractall(partial, filter="data")
    Path(archive).unlink()
    partial.rename(home)
    return home


def _wait(process: "subprocess.Popen[bytes]", url: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit("Apicurio did not start") from None
            time.sleep(0.2)
        else:
            return


def _put(url: str, body: bytes) -> None:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="PUT")
    urllib.request.urlopen(request, timeout=10).close()


if __name__ == "__main__":
    sys.exit(main())
