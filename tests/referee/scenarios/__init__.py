"""The scenarios, one module for each API."""

from importlib import import_module
from pkgutil import iter_modules

from tests.referee.scenario import Scenario
from tests.referee.scenarios import malformed


def every_scenario() -> list[Scenario]:
    """All scenarios at their versions, in a stable order."""
    modules = sorted(module.name for module in iter_modules(__path__))
    groups = [
        import_module(f"{__name__}.{name}").scenario for name in modules if name != "malformed"
    ]
    return [scenario for group in [*groups, *malformed.ALL] for scenario in group]
