import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def garbage_of_broken_brokers() -> Iterator[None]:
    """Collect in its module what a test left that broke off."""
    yield
    gc.collect()
