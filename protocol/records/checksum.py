"""CRC-32C, the checksum of record batches: the extension module of `crc32c` without its package.

The package looks its own version up when it is imported, and what that takes (`importlib.metadata`,
`email`, `zipfile`) is a fifteenth of the time a broker takes to start.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Final


def _load() -> Callable[..., int]:
    package = PathFinder.find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    found = PathFinder.find_spec("crc32c._crc32c", places)
    if found is None or found.loader is None:
        # A distribution that is laid out in another way is imported as it wants to be.
        from crc32c import crc32c

        return crc32c
    extension = module_from_spec(found)
    found.loader.exec_module(extension)
    function: Callable[..., int] = extension.crc32c
    return function


crc32c: Final = _load()
"""`crc32c(data, start=0)`: the checksum of `data`, going on from that of what stands before it."""
