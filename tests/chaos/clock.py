"""Wall clocks that jump: a small library in front of libc, and a file for each broker that says how
far its clock is off."""

import functools
import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")


class Clock:
    """The wall clock of one broker, over all its processes."""

    def __init__(self, directory: Path, name: str) -> None:
        self._library = _library(directory)
        self._file = directory / f"clock-{name}"
        self._file.write_bytes(bytes(16))

    @property
    def environment(self) -> dict[str, str]:
        if self._library is None:
            return {}
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._file)}

    def move(self, seconds: float) -> None:
        """To so far from the true time."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("<q", int(seconds * 1e9)))

    def told(self) -> int:
        """Return how often a process read a wrong time."""
        return int(struct.unpack("<qq", self._file.read_bytes())[1])


def installed() -> bool:
    return shutil.which("cc") is not None


@functools.cache
def _library(directory: Path) -> Path | None:
    if not installed():
        return None
    library = directory / "clock.so"
    words = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    subprocess.run(words, check=True)
    return library
