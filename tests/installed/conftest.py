"""The wheel and the sdist, built once for each process of a run."""

import shutil
from pathlib import Path

import pytest

from tests.support.command_line import ROOT
from tests.support.installation import build, tracked
from tests.support.repository import links


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with its links: a build leaves files behind."""
    copy = tmp_path_factory.mktemp("sources") / "barnabas"
    for path in tracked():
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, copy / path)
    for name, target in links().items():
        (copy / name).symlink_to(target)
    return copy


@pytest.fixture(scope="session")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", sources, tmp_path_factory.mktemp("wheel") / "dist")


@pytest.fixture(scope="session")
def sdist(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", sources, tmp_path_factory.mktemp("sdist") / "dist")
