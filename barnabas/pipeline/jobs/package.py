"""A job as one file for `spark-submit`: its job file, Barnabas and the packages that it imports.

The file is a zip archive, because Python runs one as a program (PEP 441), and its name ends in .py,
because `spark-submit` takes no other program of Python. The program is
`barnabas.pipeline.spark.packaged`. Python imports no compiled module from an archive: the program
unpacks it, on the driver, and lets Spark unpack it on each executor.
"""

import json
import sysconfig
from collections import deque
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import barnabas
from barnabas.pipeline.jobs.reading import JobFile
from barnabas.pipeline.jobs.spec import SECRET, Job, Location, Problem

ENDING: Final = ".py"
_OF_SPARK: Final = ("pyspark", "py4j")
"""Packages that the cluster's Spark has."""
OF_PROGRAM: Final = ("spark.archives", "spark.executorEnv.PYTHONPATH")
"""Settings to which `barnabas.pipeline.spark.packaged` adds."""
_OF_INSTALLERS: Final = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
"""Files about an installation, which differ between installers."""
_SECURITY: Final = ("cryptography", "jwt")
"""The modules of the extra `security`, which most logins do without."""
_DISCOVERY: Final = "pyspark_barnabas"
"""The module by which Spark finds the data source."""
_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file: the archive depends on nothing but its content."""
_GIVE: Final = "give a URI, or a path from / that all hosts share"


class PackageError(ValueError):
    """The reason why there is no archive, in one line."""


class Package(NamedTuple):
    """The content of an archive."""

    files: Mapping[str, bytes | Path]
    """The content, or the file with it, by the name in the archive."""
    job_files: list[str]
    versions: Mapping[str, str]
    """The versions of the packages by their names."""
    python: str
    platform: str


def check_package(file: JobFile) -> None:
    """Check a job that was read to be packed for what a cluster does not have; raises JobError."""
    job = file.job
    problems = []
    folders: list[tuple[Location, str]] = [(("checkpoint",), job.checkpoint)]
    folders += [((*location, "path"), files.path) for location, files in job.files]
    for place, path in folders:
        if not _is_everywhere(path):
            text = f"{place[-1]}: on a cluster {path!r} is another folder for each host; {_GIVE}"
            problems.append(Problem(place, text))
    for index, table in enumerate(job.tables):
        if table.path is not None and not _is_everywhere(table.path):
            text = f"path: {table.path} is not packed; {_GIVE}"
            problems.append(Problem(("tables", index, "path"), text))
    for name in job.spark:
        if SECRET.search(name) or name in OF_PROGRAM:
            why = "a secret is not packed" if name not in OF_PROGRAM else "the program adds to it"
            text = f"{name}: {why}; give it to spark-submit with --conf"
            problems.append(Problem(("spark", name), text))
    if problems:
        raise file.failure(problems)


def _is_everywhere(path: str) -> bool:
    return "://" in path or Path(path).is_absolute()


def plan_package(file: JobFile) -> Package:
    """Return what the archive of a job has; raises PackageError."""
    found = list(_distributions(_requirement(file.job)))
    schemas = sorted({each.as_posix() for each in file.references.packed})
    job_files = [file.path.name, *schemas]
    files: dict[str, bytes | Path] = dict(_own_files())
    for each in found:
        files |= _files_of(each)
    files |= {f"job/{each}": file.path.parent / each for each in job_files}
    python, platform = sysconfig.get_python_version(), sysconfig.get_platform()
    about = {
        "name": file.job.name,
        "job": f"job/{file.path.name}",
        "python": python,
        "platform": platform,
    }
    files["package.json"] = json.dumps(about, indent=1).encode()
    versions = {each.name: each.version for each in found}
    versions["barnabas"] = barnabas.__version__
    return Package(files, job_files, dict(sorted(versions.items())), python, platform)


def write_package(package: Package, to: Path) -> int:
    """Write the archive, and return its size. The same content has the same bytes."""
    new = to.with_name(f"{to.name}.new")
    try:
        with ZipFile(new, "w") as archive:
            for name, content in sorted(package.files.items()):
                entry = ZipInfo(name, _EARLIEST)
                entry.compress_type = ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, content if isinstance(content, bytes) else _read(content))
        new.replace(to)
    finally:
        new.unlink(missing_ok=True)
    return to.stat().st_size


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise PackageError(f"{path} is missing; install its package again") from None


# -- the packages ----------------------------------------------------------------------------------


def _requirement(job: Job) -> Requirement:
    """Return Barnabas with the extras of a job."""
    parts = [*(each for _, each in job.inputs), *job.tables, *(each for _, each in job.outputs)]
    extras = ["spark"]
    if all(map(find_spec, _SECURITY)):
        extras.append("security")
    if any(each.has_schemas for each in parts):
        extras.append("formats")
    return Requirement(f"barnabas[{','.join(extras)}]")


def _distributions(root: Requirement) -> Iterator[Distribution]:
    """Yield the distributions that `root` requires here, without it and without PySpark."""
    wanted, seen = deque([root]), {str(root)}
    found = {canonicalize_name(root.name), *_OF_SPARK}
    while wanted:
        requirement = wanted.popleft()
        name = canonicalize_name(requirement.name)
        if name in _OF_SPARK:
            continue
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            raise PackageError(f"package {name} is missing: pip install '{root}'") from None
        if name not in found:
            found.add(name)
            yield installed
        for each in map(Requirement, installed.requires or ()):
            marker = each.marker
            extras = ("", *requirement.extras)
            if str(each) not in seen and (
                marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)
            ):
                seen.add(str(each))
                wanted.append(each)


def _files_of(installed: Distribution) -> Iterator[tuple[str, Path]]:
    if installed.files is None:
        raise PackageError(f"package {installed.name} has no list of its files: install it by pip")
    for each in installed.files:
        is_outside = each.parts[0] == ".." or each.is_absolute()
        if not is_outside and "__pycache__" not in each.parts and each.name not in _OF_INSTALLERS:
            yield f"packages/{each.as_posix()}", Path(str(each.locate()))


def _own_files() -> Iterator[tuple[str, Path]]:
    """Yield the program of the archive, and the modules of Barnabas, installed or in a clone."""
    folder = Path(barnabas.__file__).parent
    yield "__main__.py", folder / "pipeline" / "spark" / "packaged.py"
    for each in folder.rglob("*.py"):
        yield f"packages/barnabas/{each.relative_to(folder).as_posix()}", each
    yield f"packages/{_DISCOVERY}.py", folder.parent / f"{_DISCOVERY}.py"
