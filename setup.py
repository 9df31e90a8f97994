"""The packages of a build, each mapped to its folder at the top of the repository.

`barnabas/broker` is a link to `broker`, for type checkers, editors and editable installs. A zip may
hold a link as a text file, so a build reads the folders themselves. The list is computed: a new
folder with an `__init__.py` is a new package. pyproject.toml has the rest of the build.
"""

import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

FOLDERS = find_packages(exclude=["barnabas", "barnabas.*"])
FLOORS = [name for name in FOLDERS if "." not in name]


class BuildModules(build_py):
    """The copy of the modules into the build folder, which setuptools never empties.

    A module that was deleted since the last build would otherwise stay in the wheel.
    """

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib) / "barnabas", ignore_errors=True)
        super().run()


setup(
    cmdclass={"build_py": BuildModules},
    # Spark finds data sources by the names of top-level modules.
    py_modules=["pyspark_barnabas"],
    packages=["barnabas", *(f"barnabas.{name}" for name in FOLDERS)],
    package_dir={"barnabas": "barnabas", **{f"barnabas.{floor}": floor for floor in FLOORS}},
)
