"""One Docker engine for all tests of this directory, and the image under test."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.engine import Engine, why_not
from tests.docker.files import ROOT

KEPT_DIRECTORY = "BARNABAS_DOCKER_DIR"
"""A directory that is kept, with the base images: the second run need not make them again."""


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    if reason := why_not():
        pytest.skip(reason)
    kept = os.environ.get(KEPT_DIRECTORY)
    directory = Path(kept or tempfile.mkdtemp(prefix="barnabas-docker-"))
    try:
        with Engine(directory) as engine:
            engine.prepare()
            yield engine
    finally:
        if kept is None:
            shutil.rmtree(directory)


@pytest.fixture(scope="session")
def image(engine: Engine) -> str:
    engine.run("docker", "build", "--tag", "barnabas", ROOT)
    return "barnabas"
