"""A Docker Engine for the tests only, and images under official names that need no registry.

    Debian by debootstrap -> python:3.11-slim -> Debian's ZooKeeper  -> zookeeper:3.8
                                              -> Debian's Prometheus -> prom/prometheus

Only these images replace the ones that a user would pull; Dockerfile and docker-compose.yml are
built and run unchanged. Debian has no Compose v2; its Go module can be built in an empty folder:

    go mod init compose && go get github.com/docker/compose/v2@v2.29.7
    go build -mod=mod -o ~/.docker/cli-plugins/docker-compose github.com/docker/compose/v2/cmd

The engine has a directory, a socket and a process of its own: it does not
touch other containers on the machine.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

CERTIFICATES = Path("etc/ssl/certs/ca-certificates.crt")
DEBIAN = "bookworm"
"""The Debian release with Python 3.11."""
BASE = "python:3.11-slim"
PACKAGED = {"zookeeper:3.8": "zookeeper", "prom/prometheus:v2.55.1": "prometheus"}
"""The images that Debian's packages replace, with the folder of each beside this file."""
START_SECONDS = 60
PROGRAMS = ("dockerd", "docker", "docker-compose", "debootstrap")


def why_not() -> str:
    """Return the reason why the engine cannot run here; an empty text if it can."""
    if os.geteuid() != 0:
        return "dockerd and debootstrap need root"
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        return f"{', '.join(missing)} missing: apt-get install docker.io docker-compose debootstrap"
    return ""


def wait_for(what: str, seconds: float, true: Callable[[], bool]) -> None:
    """Raise AssertionError if the condition does not become true in time."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)


class Engine:
    """An engine with its files in one directory; images that exist there are used again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.environment: Mapping[str, str] = os.environ | {
            "DOCKER_HOST": f"unix://{directory}/docker.sock",
            "COMPOSE_PROJECT_NAME": "barnabas",
            # The storage driver copies and removes whole file systems: 1.3 GB of the pipeline's.
            "COMPOSE_HTTP_TIMEOUT": "600",
        }

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / "dockerd.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "dockerd",
                    # The only driver without requirements on the file system.
                    "--storage-driver=vfs",
                    f"--data-root={self._directory}/data",
                    f"--exec-root={self._directory}/exec",
                    f"--host=unix://{self._directory}/docker.sock",
                    f"--pidfile={self._directory}/pid",
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            wait_for(f"dockerd ({self._directory}/dockerd.log)", START_SECONDS, self._answers)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for container in self.run("docker", "ps", "--all", "--quiet").split():
            self.run("docker", "rm", "--force", "--volumes", container)
        self._stop()

    def run(
        self, *words: str | Path, text: str = "", check: bool = True, timeout: float = 600
    ) -> str:
        """Return the standard output of a program that uses this engine; AssertionError if it
        fails."""
        done = subprocess.run(
            words,
            input=text,
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=self._directory,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0 or not check, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def inspect(self, name: str, template: str) -> str:
        """Return the engine's description of a container or an image."""
        return self.run("docker", "inspect", "--format", template, name).strip()

    def health(self, container: str) -> str:
        """Return `starting`, `healthy` or `unhealthy`."""
        return self.inspect(container, "{{.State.Health.Status}}")

    def wait_until_healthy(self, containers: Sequence[str], seconds: float) -> None:
        for container in containers:
            wait_for(
                f"{container} is healthy",
                seconds,
                lambda container=container: self.health(container) == "healthy",  # type: ignore[misc]
            )

    def has_image(self, name: str) -> bool:
        return bool(self.run("docker", "images", "--quiet", name).strip())

    def prepare(self) -> None:
        """Make the images that a user would pull."""
        if not self.has_image(BASE):
            self._import_base()
        for image, folder in PACKAGED.items():
            if not self.has_image(image):
                self.run("docker", "build", "--tag", image, Path(__file__).parent / folder)

    def _import_base(self) -> None:
        base = self._directory / "base"
        packages = "--include=python3,python3-venv,tini"
        self.run("debootstrap", "--variant=minbase", packages, DEBIAN, base, self._mirror())
        # If the machine reaches PyPI through a proxy with its own CA, containers must use both,
        # too.
        if (host := "/" / CERTIFICATES).exists():
            shutil.copyfile(host, base / CERTIFICATES)
        shutil.rmtree(base / "var/cache/apt")
        archive = self._directory / "base.tar"
        self.run("tar", "--directory", base, "--create", "--file", archive, ".")
        certificates = f"ENV PIP_CERT=/{CERTIFICATES}"
        self.run("docker", "import", "--change", certificates, archive, BASE)
        archive.unlink()
        shutil.rmtree(base)

    def _mirror(self) -> str:
        """Return the Debian mirror of this machine, if it runs the same Debian release."""
        wanted = ("indextargets", "--format", "$(REPO_URI)")
        found = self.run("apt-get", *wanted, "Created-By: Packages", f"Codename: {DEBIAN}")
        return next(iter(found.split()), "http://deb.debian.org/debian")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"dockerd ended: see {self._directory}/dockerd.log"
        return self.run("docker", "info", "--format", "{{.ID}}", check=False).strip() != ""

    def _stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=60)
