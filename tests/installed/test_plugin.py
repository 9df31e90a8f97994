"""The plugin of the installed wheel: pytest rewrites its assertions, and no others of Barnabas."""

import shutil
from pathlib import Path

import pytest

from tests.support.installation import PROJECT, Installation

TESTS = """
import sys
from importlib.machinery import SourceFileLoader

import pyspark_barnabas

def test_modules_of_the_brokers(barnabas_broker, barnabas_cluster):
    ours = [
        (name, module)
        for name, module in sys.modules.items()
        if name.partition(".")[0] in ("barnabas", "pyspark_barnabas")
    ]
    assert len(ours) > 300
    # The name under which pytest imports itself into a module that it rewrites.
    assert {name for name, module in ours if "@pytest_ar" in vars(module)} == {
        "barnabas.testing.plugin"
    }
"""
CONFTEST = "import barnabas.broker.app\n"
TWICE = """
import sys, pytest
import barnabas, pyspark_barnabas
for test in sys.argv[1:]:
    assert pytest.main(["-p", "no:cacheprovider", "-W", "error", test]) == 0
"""


@pytest.fixture(scope="module")
def installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    installation = Installation(tmp_path_factory.mktemp("plugin"), shared=False)
    installation.link(*PROJECT["dependencies"], "pytest", "pytest-xdist")
    installation.install(wheel)
    (installation.folder / "conftest.py").write_text(CONFTEST)
    (installation.folder / "test_it.py").write_text(TESTS)
    return installation


@pytest.mark.parametrize(
    ("arguments", "without_bytecode"),
    [((), ""), (("-n1",), "1")],
    ids=["one-process", "xdist-without-bytecode"],
)
def test_no_module_but_the_plugin_is_rewritten(
    installation: Installation, arguments: tuple[str, ...], without_bytecode: str
) -> None:
    installation.pytest("test_it.py", *arguments, PYTHONDONTWRITEBYTECODE=without_bytecode)


def test_no_module_is_rewritten_where_bytecode_cannot_be_stored(
    wheel: Path, tmp_path: Path
) -> None:
    """Root may write into any folder, so a file is in the place of each folder for bytecode."""
    installation = Installation(tmp_path, shared=False)
    installation.link(*PROJECT["dependencies"], "pytest")
    installation.install(wheel)
    for folder in {path.parent for path in installation.paths()}:
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)
        (folder / "__pycache__").touch()
    (tmp_path / "test_it.py").write_text(TESTS)
    installation.pytest("test_it.py")


def test_second_run_in_a_process_rewrites_nothing_and_warns_of_nothing(
    installation: Installation,
) -> None:
    (installation.folder / "test_first.py").write_text("def test_nothing(): pass")
    (installation.folder / "conftest.py").unlink()
    installation.run(TWICE, "test_first.py", "test_it.py")
