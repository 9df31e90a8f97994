"""Brokers for the tests of applications, which start in well under a second.

PYTEST_DONT_REWRITE: `barnabas/testing/plugin.py` says why.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.testing.broker import AsyncBroker, Broker
    from barnabas.testing.cluster import AsyncCluster, Cluster
    from barnabas.testing.security import allow, deny

__all__ = ["AsyncBroker", "AsyncCluster", "Broker", "Cluster", "allow", "deny"]
_MODULES = {
    "AsyncBroker": "broker",
    "AsyncCluster": "cluster",
    "Broker": "broker",
    "Cluster": "cluster",
    "allow": "security",
    "deny": "security",
}


def __getattr__(name: str) -> Any:
    # pytest imports this package for its plugin in every run: heavy imports wait for the first use.
    if name in _MODULES:
        if sys.platform == "win32":
            raise ImportError(
                "barnabas.testing: Windows is not supported: use WSL or the container"
            )
        return getattr(import_module(f"barnabas.testing.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
