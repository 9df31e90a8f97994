"""The build of the running Python."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_OPTION: Final = "--enable-optimizations"
_STDLIB: Final = Path(os.__file__).parent


def is_profile_guided(stdlib: Path = _STDLIB) -> bool | None:
    """Return whether Python was built with profile-guided optimization; None if it is unknown.

    The configuration of the build is read as text: `sysconfig` would keep all of it in memory,
    460 KB. Debian builds its packages with profiles (`make profile-opt`), but their configuration
    is that of the shared library, which has no such option.
    """
    with suppress(OSError, UnicodeDecodeError):
        for name in os.listdir(stdlib):
            if name.startswith("_sysconfigdata_") and name.endswith(".py"):
                return _OPTION in (stdlib / name).read_text() or _is_debian()
    return None


def _is_debian() -> bool:
    import sysconfig

    return "deb_system" in sysconfig.get_scheme_names()
