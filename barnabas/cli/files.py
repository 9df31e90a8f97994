"""Files that a command writes, each as a whole: a reader sees the content before it or after it."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

SECRET: Final = 0o600
PUBLIC: Final = 0o644


def replace_file(path: Path, content: bytes, mode: int = SECRET) -> None:
    """Write a file as a whole; nothing of it can be read before it has its mode.

    Raises OSError; a file that was there is unchanged then.
    """
    # Imported here: the start of a broker does not pay for it.
    import tempfile

    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.replace(file.name, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(file.name)
            raise


class AddressFile:
    """The file that holds the address of brokers while they serve; a context manager.

    It begins with the removal of a file that a killed process has left.
    """

    def __init__(self, path: Path | None, started: Callable[[str], None] | None = None) -> None:
        """With None there is no file. `started` gets the address when the brokers serve."""
        self._path = path
        self._started = started

    def __enter__(self) -> "AddressFile":
        if self._path is not None:
            if not self._path.absolute().parent.is_dir():
                raise click.ClickException(f"{self._path}: there is no such directory")
            self._path.unlink(missing_ok=True)
        return self

    def write(self, servers: str) -> None:
        """Write the value of `bootstrap.servers`, one line, and pass it on. Raises OSError."""
        if self._path is not None:
            replace_file(self._path, f"{servers}\n".encode(), PUBLIC)
        if self._started is not None:
            self._started(servers)

    def __exit__(self, *error: object) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)


NO_FILE: Final = AddressFile(None)
