"""The target `pipeline` and its profile: the example from its start to its verdict."""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.docker.engine import Engine, wait_for
from tests.docker.files import ROOT

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("docker"),
]

PAGE = "http://localhost:8088"
SECONDS = 300
"""Enough for a JVM's start and a kill of the driver on a busy machine."""


@pytest.fixture(scope="module", params=["docker-compose", "docker compose"], ids=["v1", "v2"])
def service(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Any]:
    """Run the service alone; yield the function for commands of Compose."""
    command = tuple(request.param.split())
    if not engine.run(*command, "version", check=False):
        pytest.skip(f"{request.param} is not installed")

    def compose(*words: str) -> str:
        file = ("--file", str(ROOT / "docker-compose.yml"), "--profile", "pipeline")
        return engine.run(*command, *file, *words, timeout=1500)

    try:
        compose("up", "--detach", "pipeline")
        yield compose
    finally:
        compose("down", "--volumes")


def state() -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"{PAGE}/state", timeout=10) as answer:
            return dict(json.load(answer))
    except OSError:
        return {}


def kill(name: str) -> None:
    headers = {"X-Barnabas": "1"}
    request = urllib.request.Request(f"{PAGE}/kill/{name}", method="POST", headers=headers)
    urllib.request.urlopen(request, timeout=30).close()


def test_example_runs_is_killed_and_gives_its_verdict(service, engine):
    container = service("ps", "--all", "--quiet", "pipeline").strip()
    wait_for("sums", SECONDS, lambda: state().get("sums", 0) > 0)
    engine.wait_until_healthy([container], 60)
    kill("driver")
    sums = state()["sums"]
    wait_for("more sums", SECONDS, lambda: state().get("sums", 0) > sums)
    service("stop", "pipeline")
    assert engine.inspect(container, "{{.State.ExitCode}}") == "0"
    assert engine.run("docker", "logs", container).endswith("no fault found\n")
