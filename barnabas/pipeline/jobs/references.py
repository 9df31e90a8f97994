"""Values that a job file names in place of having them: `{file: PATH}` and `{env: VARIABLE}`."""

import os
from pathlib import Path
from typing import Final

IN_CLEAR: Final = "a secret does not belong into a job file; write {file: PATH} or {env: VARIABLE}"


class References:
    """The references of a job file, whose paths begin at `folder`.

    If the job is packed to run elsewhere, `packed` has the files that go with it; the other
    references are those of the host that runs the job, and are not followed here.
    """

    def __init__(self, folder: Path, *, packs: bool = False) -> None:
        self.folder: Final = folder
        self.packs: Final = packs
        self.packed: Final[list[Path]] = []

    def resolve(self, name: str, value: object, *, goes_along: bool = False) -> str | None:
        """Return the text that the value of key `name` refers to; None if it is no reference.

        With `goes_along` a file is part of the job, as a schema is. Raises ValueError, whose text
        shows no value.
        """
        match value:
            case {"file": str(path), **more} if not more:
                return self._file(name, path, goes_along)
            case {"env": str(variable), **more} if not more:
                if self.packs:
                    return ""
                if (found := os.environ.get(variable)) is None:
                    raise ValueError(f"{name}: set the environment variable {variable}")
                return found
        return None

    def _file(self, name: str, path: str, goes_along: bool) -> str:
        if self.packs and not goes_along:
            if not Path(path).is_absolute():
                raise ValueError(
                    f"{name}: file {path} is not packed; write {{env: VARIABLE}}, or a path from"
                    " / that the driver has"
                )
            return ""
        whole = self.folder / path
        if self.packs:
            if not whole.resolve().is_relative_to(self.folder.resolve()):
                raise ValueError(f"{name}: file {path} has to be below the folder of the job file")
            self.packed.append(Path(path))
        try:
            return whole.read_text(encoding="utf-8").removesuffix("\n")
        except (OSError, UnicodeDecodeError):
            raise ValueError(f"{name}: file {path} cannot be read") from None
