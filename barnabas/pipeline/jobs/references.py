"""Values that a job file names in place of having them: `{file: PATH}` and `{env: VARIABLE}`."""

import os
from pathlib import Path
from typing import Final

IN_CLEAR: Final = "a secret does not belong into a job file; write {file: PATH} or {env: VARIABLE}"


def resolve(name: str, value: object, folder: Path) -> str | None:
    """Return the text that the value of key `name` refers to; None if it is no reference.

    Paths begin at `folder`. Raises ValueError, whose text shows no value.
    """
    match value:
        case {"file": str(path), **more} if not more:
            try:
                return (folder / path).read_text(encoding="utf-8").removesuffix("\n")
            except (OSError, UnicodeDecodeError):
                raise ValueError(f"{name}: file {path} cannot be read") from None
        case {"env": str(variable), **more} if not more:
            if (found := os.environ.get(variable)) is None:
                raise ValueError(f"{name}: set the environment variable {variable}")
            return found
    return None
