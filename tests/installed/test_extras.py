"""The wheel with each extra alone, and with none: an extra that is missing is named in one line."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.command_line import ROOT
from tests.support.installation import PROJECT, Installation, install_from_index, succeed

EXTRAS = PROJECT["optional-dependencies"]
FOR_TESTS = {"test", "test-tools", "spark-stock"}
FOR_DOCUMENTS = {"docs"}


def installed(wheel: Path, folder: Path, *extras: str) -> Installation:
    """Return an installation that sees the packages of these extras, and of no others."""
    installation = Installation(folder, shared=False)
    installation.link(*PROJECT["dependencies"], *(each for name in extras for each in EXTRAS[name]))
    installation.install(wheel)
    return installation


@pytest.mark.parametrize("extra", ["", *sorted(EXTRAS.keys() - FOR_TESTS - FOR_DOCUMENTS)])
def test_features_of_an_extra_work_and_the_others_name_theirs(
    wheel: Path, tmp_path: Path, extra: str
) -> None:
    installation = installed(wheel, tmp_path, *filter(None, [extra]))
    program = (Path(__file__).parent / "features.py").read_text()
    ends = json.loads(installation.run(program))
    assert {needed for needed, _ in ends.values()} >= {"", extra}
    works = {name: error for name, (needed, error) in ends.items() if needed in ("", extra)}
    assert works == dict.fromkeys(works, "")
    others = {name: end for name, end in ends.items() if name not in works}
    wrong = {
        name: error
        for name, (needed, error) in others.items()
        if len(error.splitlines()) != 1 or f"pip install 'barnabas[{needed}]'" not in error
    }
    assert wrong == {}


@pytest.mark.timeout(300)
def test_site_builds_without_a_warning_with_its_extra_alone(wheel: Path, tmp_path: Path) -> None:
    """The tests' own environment has pytest, which the reference once needed."""
    installation = Installation(tmp_path, shared=False)
    install_from_index(installation, f"barnabas[docs] @ {wheel.as_uri()}")
    with pytest.raises(AssertionError, match="No module named 'pytest'"):
        succeed(installation.python, "-c", "import pytest", cwd=tmp_path)
    succeed(installation.python, "-m", "docs.build.site", tmp_path / "site", cwd=ROOT)
    client = (tmp_path / "site" / "docs" / "sphinx" / "client.html").read_text()
    assert "send_offsets_to_transaction" in client


def test_site_without_its_extra_names_it(wheel: Path, tmp_path: Path) -> None:
    installation = installed(wheel, tmp_path)
    shutil.copytree(ROOT / "docs" / "build", tmp_path / "docs" / "build")
    told = "import runpy; runpy.run_module('docs.build.site', run_name='__main__')"
    with pytest.raises(AssertionError, match=r"pip install '\.\[docs\]'\n$"):
        installation.run(f"import sys; sys.path.insert(0, ''); {told}")
