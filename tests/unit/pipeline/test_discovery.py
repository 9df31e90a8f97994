"""The module that Spark finds the data source by; an error in it would hide every other source."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

FAILING_IMPORT = """
import sys

class Fail:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            raise {error}

sys.meta_path.insert(0, Fail())
"""
SPARKS_LOOKUP = """
from io import BytesIO
from pyspark.sql.worker.lookup_data_sources import _main
found = BytesIO()
_main(None, found)
"""


def run(program: str) -> str:
    """Run a program that finds the modules at the top of the repository."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_module_alone_imports_neither_spark_nor_barnabas() -> None:
    imported = run(
        "import sys; before = set(sys.modules); import pyspark_barnabas; "
        "print(sorted(set(sys.modules) - before))"
    )
    assert imported == "['pyspark_barnabas']\n"


def test_source_imports_no_client_and_no_arrow() -> None:
    """Spark imports it in every session, whether it is used or not."""
    imported = run(
        "import pyspark.sql.datasource, sys; before = set(sys.modules); "
        "from pyspark_barnabas import DefaultSource; print(DefaultSource.name()); "
        "print(*(set(sys.modules) - before))"
    )
    name, modules = imported.splitlines()
    assert name == "barnabas"
    tops = {module for module in modules.split() if not module.startswith("__editable__")}
    assert {module for module in tops if not module.startswith("barnabas")} == {"pyspark_barnabas"}
    assert not {module for module in tops if module.startswith("barnabas.client")}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("pyspark", "ImportError('no pyspark')"),
        ("pyspark.sql.datasource", "ModuleNotFoundError('too old')"),
        ("barnabas", "ModuleNotFoundError('no barnabas')"),
        ("barnabas.pipeline.spark.format", "RuntimeError('broken')"),
        ("barnabas.pipeline.spark.format", "AttributeError('broken')"),
    ],
)
def test_source_is_absent_where_it_cannot_be_imported(name: str, error: str) -> None:
    program = FAILING_IMPORT.format(name=name, error=error)
    assert run(f"{program}import pyspark_barnabas as it; print(hasattr(it, 'DefaultSource'))") == (
        "False\n"
    )
    reason = run(
        f"{program}import pyspark_barnabas as it\n"
        "try: it.DefaultSource\n"
        "except AttributeError as error: print(error)"
    )
    mend = "; pip install 'barnabas[spark]'" if "Error('no" in error or "old" in error else ""
    assert reason == (
        f"the data source barnabas cannot be imported: {error.split(chr(39))[1]}{mend}\n"
    )


def test_command_line_imports_the_pipeline_when_a_job_is_read() -> None:
    """An installation without the extra has the command, and a broker starts without NumPy."""
    imported = run(
        "import sys, barnabas.cli.main, barnabas.cli.commands.pipeline; print(*sys.modules)"
    )
    heavy = {"pyspark", "pyarrow", "numpy", "pydantic", "yaml", "barnabas.pipeline"}
    assert not heavy & set(imported.split())


def test_sparks_lookup_finds_the_source() -> None:
    assert run(f"{SPARKS_LOOKUP}print(b'barnabas' in found.getvalue())") == "True\n"


def test_sparks_lookup_survives_where_barnabas_is_broken() -> None:
    broken = FAILING_IMPORT.format(name="barnabas.pipeline.spark.format", error="OSError('bad')")
    assert run(f"{broken}{SPARKS_LOOKUP}print(b'barnabas' in found.getvalue())") == "False\n"
