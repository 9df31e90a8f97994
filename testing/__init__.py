"""Brokers for the tests of applications, which start in well under a second."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.testing.broker import Broker
    from barnabas.testing.cluster import Cluster

__all__ = ["Broker", "Cluster"]


def __getattr__(name: str) -> Any:
    # pytest imports this package for its plugin in every run: heavy imports wait for the first use.
    if name in __all__:
        return getattr(import_module(f"barnabas.testing.{name.lower()}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
