"""What people import in their tests: a real broker in well under a second."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> Any:
    # pytest imports this package for its plugin in every run: what is heavy waits until asked for.
    if name == "Broker":
        from barnabas.testing.broker import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
