"""One engine for all tests of this directory, and the image that they look at."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.engine import Engine, why_not
from tests.docker.files import ROOT

ROOM = "BARNABAS_DOCKER_ROOM"
"""A directory that is kept, base images and all: the second run need not make them again."""


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    if reason := why_not():
        pytest.skip(reason)
    kept = os.environ.get(ROOM)
    room = Path(kept or tempfile.mkdtemp(prefix="barnabas-docker-"))
    try:
        with Engine(room) as engine:
            engine.prepare()
            yield engine
    finally:
        if kept is None:
            shutil.rmtree(room)


@pytest.fixture(scope="session")
def image(engine: Engine) -> str:
    engine.run("docker", "build", "--tag", "barnabas", ROOT)
    return "barnabas"
