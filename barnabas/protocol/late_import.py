"""Late imports: after its start, a process uses only files of its own release.

An upgrade replaces the files under a running process. If a process imported modules of both
releases, or had a child process of another release, they would not fit together.
"""

import sys
from importlib import import_module
from importlib.machinery import SourceFileLoader
from typing import Any

import barnabas
from barnabas.protocol.errors import ProtocolError


class ReleaseReplaced(ProtocolError):
    """The installed package is of another release than this process."""


def import_late(name: str) -> Any:
    """Return a module of the package, and import it if nothing has done so.

    Raises ReleaseReplaced if the package was replaced since this process started.
    """
    found = sys.modules.get(name)
    if found is not None:
        return found
    require_release(name)
    return import_module(name)


def require_release(wanted: str) -> None:
    """Raise ReleaseReplaced if the package was replaced since this process started.

    `wanted` is the module that is to be used, for the error.
    """
    if not _is_same_release():
        raise ReleaseReplaced(
            f"release {barnabas.__version__} runs, and its files were replaced by another one "
            f"before {wanted} was needed: restart this process"
        )


def _is_same_release() -> bool:
    spec = barnabas.__spec__
    assert spec is not None
    assert spec.origin is not None
    loader: Any = spec.loader
    if not hasattr(loader, "get_source"):
        # The loader of pytest, which imports the packages of its plugins.
        loader = SourceFileLoader(spec.name, spec.origin)
    try:
        # Zip files too; None without sources.
        source = loader.get_source(spec.name)
    except ImportError:
        return False
    return source is None or f'__version__ = "{barnabas.__version__}"' in source.splitlines()
