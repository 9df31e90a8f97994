"""Tests without the garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Keep the collector away: it would walk over the objects of clients and of pytest too."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
