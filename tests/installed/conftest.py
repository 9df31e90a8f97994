"""The wheel and the sdist, built once for each process of a run."""

from pathlib import Path

import pytest

from tests.support.installation import build, copy_sources


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("sources") / "barnabas"
    copy_sources(copy)
    return copy


@pytest.fixture(scope="session")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", sources, tmp_path_factory.mktemp("wheel") / "dist")


@pytest.fixture(scope="session")
def sdist(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", sources, tmp_path_factory.mktemp("sdist") / "dist")
