"""Checks that the Python processes of Spark have Barnabas, before one ends in a traceback."""

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from barnabas.pipeline.errors import OneLineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEEDED: Final = ("barnabas", "crc32c", "numpy", "pyarrow")
"""Barnabas, one of its dependencies, and those of the extra `spark`."""
_MISSING: Final = """
def missing(*names):
    from importlib.util import find_spec
    return " ".join(name for name in names if find_spec(name) is None)
"""
_PATIENCE_S: Final = 60.0
_REASON: Final = re.compile(r'(?m)^(?:\w+[.])*(\w+Error: .+)$|(Cannot run program "[^"]+")')
_ON_THE_SERVER: Final = (
    "run pip install 'barnabas[spark]' there, or set PYSPARK_PYTHON where the server starts"
)


class NoBarnabas(OneLineError):
    """The Python of Spark's processes lacks Barnabas; the text says what to set."""


def require_barnabas(spark: "SparkSession") -> None:
    """Raise NoBarnabas unless the Python of Spark's processes next to the driver has Barnabas.

    On other hosts it is not asked for.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        _require_server(spark)
    else:
        _require_program(spark.sparkContext.pythonExec)


def _require_program(program: str) -> None:
    found = shutil.which(program)
    if found is not None and _is_this_python(found):
        return
    remedy = f"set PYSPARK_PYTHON={sys.executable} in the environment before the session is created"
    if found is None:
        raise NoBarnabas(
            f"Spark starts its Python processes with {program}, which is not found: {remedy}"
        )
    script = f"import sys{_MISSING}\nprint(missing(*sys.argv[1:]))"
    done = subprocess.run(
        [found, "-c", script, *_NEEDED],
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    if done.returncode or done.stdout.strip():
        lacking = ", ".join(done.stdout.split()) or "what it needs to start"
        raise NoBarnabas(
            f"Spark starts its Python processes with {found}, which lacks {lacking}: {remedy}"
        )


def _is_this_python(program: str) -> bool:
    """Return whether a program is this Python; in a venv the link is, not what it points to."""
    ours = os.path.abspath(sys.executable)
    same_folder = os.path.dirname(os.path.abspath(program)) == os.path.dirname(ours)
    return same_folder and os.path.samefile(program, ours)


def _require_server(spark: "SparkSession") -> None:
    """Ask a server of Spark Connect, in one of its Python processes."""
    from pyspark.errors import PySparkException
    from pyspark.sql.functions import lit, udf

    made: dict[str, Any] = {"__name__": "__main__"}
    # Of this module, the server would import the function: Barnabas is what it may lack.
    exec(_MISSING, made)
    names = [lit(each) for each in _NEEDED]
    try:
        (row,) = spark.range(1).select(udf(made["missing"], "string")(*names)).collect()
    except PySparkException as error:
        # The text is that of Spark and of the worker, with their traces.
        reasons = ["".join(found) for found in _REASON.findall(str(error))]
        reason = reasons[-1] if reasons else str(error).strip().partition("\n")[0]
        raise NoBarnabas(
            f"the Spark Connect server runs no Python function ({reason}): {_ON_THE_SERVER}"
        ) from error
    if row[0]:
        lacking = ", ".join(row[0].split())
        raise NoBarnabas(f"the Spark Connect server's Python lacks {lacking}: {_ON_THE_SERVER}")
