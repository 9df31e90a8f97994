"""A registry for the tests of a module, real or fake."""

from collections.abc import Iterator

import pytest

from barnabas.registry.client import SchemaRegistry
from barnabas.registry.settings import RegistrySettings
from tests.support.registry import FakeRegistry, any_registry, fake_registry, plain


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with any_registry() as found:
        yield found


@pytest.fixture
def registry(url: str) -> SchemaRegistry:
    return SchemaRegistry(RegistrySettings((url,), retry_s=5.0))


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with fake_registry() as found:
        yield found


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return plain(request.node.name)
