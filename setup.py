"""A step of the build that pyproject.toml cannot express."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildModules(build_py):
    """The copy of the modules into the build folder, which setuptools never empties.

    A module that was deleted since the last build would otherwise stay in the wheel.
    """

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib) / "barnabas", ignore_errors=True)
        super().run()


setup(cmdclass={"build_py": BuildModules})
