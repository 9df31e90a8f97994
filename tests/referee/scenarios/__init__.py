"""The scenarios: a module for each API, and more modules for special subjects."""

from importlib import import_module
from pkgutil import iter_modules

from tests.referee.scenario import Scenario
from tests.referee.scenarios import malformed


def every_scenario() -> list[Scenario]:
    """Return all scenarios at their versions, in a stable order: by level of
    transaction.version."""
    modules = sorted(module.name for module in iter_modules(__path__))
    groups = [
        import_module(f"{__name__}.{name}").scenario for name in modules if name != "malformed"
    ]
    scenarios = [scenario for group in [*groups, *malformed.ALL] for scenario in group]
    return sorted(scenarios, key=lambda scenario: scenario.level)
