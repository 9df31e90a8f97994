"""CRC-32C, the checksum of record batches: the extension module of `crc32c` without its package.

The package looks up its own version when it is imported, and that import (`importlib.metadata`,
`email`, `zipfile`) takes a fifteenth of a broker's start time.
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
        # Another layout of the distribution: import the package in the regular way.
        from crc32c import crc32c

        return crc32c
    extension = module_from_spec(found)
    found.loader.exec_module(extension)
    function: Callable[..., int] = extension.crc32c
    return function


crc32c: Final = _load()
"""`crc32c(data, start=0)`: return the checksum of `data`, continuing from the checksum `start`."""
