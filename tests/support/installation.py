"""Installations of the wheel and of other archives, outside the repository.

Every installation has a venv of its own, so that the sources here cannot stand in for a module that
was not installed.
"""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from urllib.request import urlopen

import pyspark
import pytest
from packaging.requirements import Requirement

from tests.support.command_line import DEADLINE, ROOT, Served, environment
from tests.support.ports import free_port
from tests.support.repository import links

MODULES = {
    "pyspark_barnabas.py",
    *(str(each.relative_to(ROOT)) for each in (ROOT / "barnabas").rglob("*.py")),
}
LIBRARIES = Path(sysconfig.get_path("purelib"))
SPARK = Path(pyspark.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def succeed(*command: str | Path, cwd: Path, **more: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(PYTHONPATH="", **more),
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def distributions(requirements: Iterable[str]) -> Iterator[Distribution]:
    """Yield what pip would install for requirements, from the venv that runs the tests."""
    wanted, seen = [(Requirement(each), ("",)) for each in requirements], set()
    while wanted:
        requirement, extras = wanted.pop()
        marker = requirement.marker
        if marker is not None and not any(marker.evaluate({"extra": each}) for each in extras):
            continue
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        found = distribution(requirement.name)
        yield found
        inside = ("", *requirement.extras)
        wanted += [(Requirement(each), inside) for each in found.requires or ()]


class Installation:
    """A venv without pip; `shared` lets it see all packages of the venv that runs the tests."""

    def __init__(
        self, folder: Path, *, shared: bool = True, python: str | Path = sys.executable
    ) -> None:
        self.folder = folder
        succeed(python, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
        self.python = folder / "venv" / "bin" / "python"
        (self._libraries,) = (folder / "venv" / "lib").glob("python*/site-packages")
        if shared:
            # A .pth file in a directory that a .pth file adds is not read: an editable
            # installation of this repository stays invisible.
            folders = dict.fromkeys([LIBRARIES, SPARK.parent])
            (self._libraries / "shared.pth").write_text("".join(f"{each}\n" for each in folders))

    def link(self, *requirements: str) -> None:
        """Let the installation see what pip would install for requirements, and nothing else."""
        for each in distributions(requirements):
            for file in each.files or ():
                top = Path(file.parts[0])
                if top.name in ("..", "__pycache__"):
                    continue
                source = Path(str(each.locate_file(top)))
                if source.is_dir() and not (source / "__init__.py").exists():
                    # Other distributions have a part of this folder.
                    top = Path(*file.parts[:2])
                target = self._libraries / top
                target.parent.mkdir(exist_ok=True)
                if not target.is_symlink():
                    target.symlink_to(str(each.locate_file(top)))

    def pip(self, *arguments: str | Path) -> None:
        quiet = ("--disable-pip-version-check", "--no-compile", "--quiet")
        pip = (sys.executable, "-m", "pip", "--python", self.python)
        succeed(*pip, "install", *quiet, *arguments, cwd=self.folder)

    def install(self, archive: Path) -> None:
        """Install without a network: setuptools and the dependencies are shared."""
        self.pip("--no-index", "--no-deps", "--no-build-isolation", archive)

    def pytest(self, *arguments: str, **more: str) -> str:
        """Run pytest with the installed plugins; all tests must pass."""
        command = (self.python, "-m", "pytest", "-p", "no:cacheprovider", *arguments)
        return succeed(*command, cwd=self.folder, **more)

    def run(self, program: str, *arguments: str) -> str:
        """Run a program, with this installation's Python in Spark's processes too."""
        # A session of the tests in this process has set both for itself.
        pythons = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), str(self.python))
        spark = {**pythons, "SPARK_HOME": str(SPARK), "PYTHONPATH": ""}
        done = subprocess.run(
            [str(self.python), "-c", program, *arguments],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=environment(SPARK_LOCAL_IP="127.0.0.1", **spark),
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def paths(self) -> list[Path]:
        """Return the modules of Barnabas."""
        found = (self._libraries / "barnabas").rglob("*.py")
        return [*found, *self._libraries.glob("pyspark_*.py")]

    def modules(self) -> set[str]:
        return {str(path.relative_to(self._libraries)) for path in self.paths()}

    def check(self, data: str = "data", *settings: str) -> None:
        """Find all modules, run a broker, produce and consume one record, scrape the metrics."""
        assert self.modules() == MODULES
        assert (self._libraries / "barnabas" / "py.typed").exists()
        command = self.folder / "venv" / "bin" / "barnabas"
        metrics = f"127.0.0.1:{free_port()}"
        served = Served(
            *(settings or ("-l", "127.0.0.1:0")),
            *("-d", str(self.folder / data), "--metrics", metrics),
            command=(str(command),),
            cwd=self.folder,
            PYTHONPATH="",
        )
        try:
            assert self._run(command, "produce", "t", servers=served.servers, stdin="hello\n") == ""
            consumed = self._run(
                *(command, "consume", "t", "--from", "beginning", "--exit"), servers=served.servers
            )
            assert consumed == "hello\n"
            with urlopen(f"http://{metrics}/metrics", timeout=5) as answer:
                scraped = answer.read().decode()
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert re.search(
                r"^kafka_server_brokertopicmetrics_messagesin_total.* 1\.0$", scraped, re.M
            )
        finally:
            code, _, errors = served.stop()
        assert code == 0
        levels = {json.loads(line)["level"] for line in errors.splitlines()}
        assert levels <= {"info"}, errors

    def _run(self, *command: str | Path, servers: str, stdin: str = "") -> str:
        done = subprocess.run(
            [str(part) for part in command],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=environment(PYTHONPATH="", BARNABAS_BOOTSTRAP_SERVER=servers),
            timeout=DEADLINE,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout


def tracked() -> list[Path]:
    """Return the files of a build, relative to the repository, as a commit has them."""
    top = [
        *("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "pyspark_barnabas.py"),
        "setup.py",
    ]
    below = [each for name in ("barnabas", "docs") for each in (ROOT / name).rglob("*")]
    return [
        *map(Path, top),
        *(
            path.relative_to(ROOT)
            for path in below
            if path.is_file() and "__pycache__" not in path.parts
        ),
    ]


def copy_sources(copy: Path) -> None:
    """Copy the repository with its links: a build leaves files behind."""
    for path in tracked():
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, copy / path)
    for name, target in links().items():
        (copy / name).symlink_to(target)


def build(kind: str, sources: Path, folder: Path) -> Path:
    """Build as pip and build do, without a network; return the wheel or the sdist."""
    program = (
        "import sys, setuptools.build_meta as b; getattr(b, 'build_' + sys.argv[1])(sys.argv[2])"
    )
    folder.mkdir()
    succeed(sys.executable, "-c", program, kind, folder, cwd=sources)
    (built,) = folder.iterdir()
    return built


def install_from_index(installation: Installation, *packages: str | Path) -> None:
    """Skip the test without a package index for the old versions."""
    try:
        installation.pip("--only-binary", ":all:", *packages)
    except AssertionError as error:
        if "NewConnectionError" in str(error):
            pytest.skip("no package index can be reached")
        raise
