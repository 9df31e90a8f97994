"""The program of a packaged job, `__main__.py` in the archive of `barnabas pipeline package`.

`spark-submit` runs it on the driver. It unpacks the archive, adds to the settings of `spark-submit`
that executors get it too, and runs the job as `barnabas pipeline run` does. Before the archive is
unpacked, it can import the standard library and PySpark only.
"""

import atexit
import hashlib
import json
import os
import platform
import runpy
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from zipfile import ZipFile

UNDER_SUBMIT = "PYSPARK_GATEWAY_PORT"
"""The variable by which `spark-submit` tells a program of Python where its JVM is."""


def main() -> None:
    """Run the job of the archive from which Python has this module."""
    archive = Path(__file__).parent.resolve()
    if UNDER_SUBMIT not in os.environ:
        sys.exit(f"{archive.name} is a program for spark-submit: spark-submit {archive.name}")
    with ZipFile(archive) as packed:
        about = json.loads(packed.read("package.json"))
        _check_python(archive, about)
        name = f"{about['name']}-{_digest(packed)}"
        try:
            folder = _unpack(packed, archive, name)
        except OSError as error:
            sys.exit(f"{archive.name} cannot be unpacked: {error}")
    packages = str(folder / "packages")
    # Python has put the archive itself there.
    sys.path[0] = packages
    paths = [packages, os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    _add_settings(folder, name)
    sys.argv = ["barnabas", "pipeline", "run", str(folder / about["job"]), *sys.argv[1:]]
    runpy.run_module("barnabas", run_name="__main__")


def _check_python(archive: Path, about: dict[str, str]) -> None:
    """End with one line if the compiled modules are for another Python."""
    ours = sysconfig.get_python_version(), sysconfig.get_platform()
    if ours != (about["python"], about["platform"]):
        sys.exit(
            f"{archive.name} was packaged for Python {about['python']} on {about['platform']}, and"
            f" {sys.executable} is Python {platform.python_version()} on {ours[1]}: set"
            " PYSPARK_PYTHON to such a Python, or package the job with this one"
        )


def _digest(packed: ZipFile) -> str:
    """Return a name for the content of an archive."""
    content = [f"{each.filename} {each.CRC} {each.file_size}" for each in packed.infolist()]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()[:12]


def _unpack(packed: ZipFile, archive: Path, name: str) -> Path:
    """Return the folder with the content and a copy of the archive for Spark.

    It is kept for the next start of the driver, which may come after a crash, where there is a home
    folder that can be written.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    jobs = Path(cache) / "barnabas" / "jobs"
    try:
        jobs.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=jobs))
    except OSError:
        jobs = Path(tempfile.mkdtemp(prefix="barnabas-"))
        atexit.register(shutil.rmtree, jobs, ignore_errors=True)
        new = Path(tempfile.mkdtemp(dir=jobs))
    folder = jobs / name
    try:
        if not folder.is_dir():
            packed.extractall(new)
            # Spark unpacks what ends in .zip.
            shutil.copyfile(archive, new / f"{name}.zip")
            new.rename(folder)
    except OSError:
        # Another driver may have been faster.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return folder


def _add_settings(folder: Path, name: str) -> None:
    """Let Spark unpack the archive on each executor, and its Python processes import from there.

    A setting of the environment of executors goes to the Python processes next to the driver too,
    which are started elsewhere: the second path is for them.
    """
    from pyspark import SparkContext

    paths = os.pathsep.join((f"{name}/packages", str(folder / "packages")))
    archive = (folder / f"{name}.zip").as_uri()
    for key, value, separator in (
        ("spark.archives", f"{archive}#{name}", ","),
        ("spark.executorEnv.PYTHONPATH", paths, os.pathsep),
    ):
        given = SparkContext.getSystemProperty(key)
        SparkContext.setSystemProperty(key, f"{given}{separator}{value}" if given else value)
    if not SparkContext.getSystemProperty("spark.python.daemon.module"):
        SparkContext.setSystemProperty(
            "spark.python.daemon.module", "barnabas.pipeline.spark.daemon"
        )


if __name__ == "__main__":
    main()
