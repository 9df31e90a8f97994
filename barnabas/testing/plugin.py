"""The pytest plugin: fixtures for one running broker, or for a cluster of them.

`barnabas_broker` and `barnabas_cluster` belong to one test; `barnabas_session_broker` and
`barnabas_session_cluster` are shared by the whole run and start once; each broker of
`barnabas_process_cluster` has a separate process. All have `bootstrap_servers`. Barnabas is not
imported before a test asks for a fixture.

Settings come from three places, and the later one wins: the ini options `barnabas_configs`,
`barnabas_brokers`, `barnabas_processes` and `barnabas_start_timeout`, the fixture
`barnabas_configs`, which a project overrides, and the mark `barnabas`, which gives the arguments of
`Broker` or `Cluster` to a test's own brokers:
`@pytest.mark.barnabas({"num.partitions": 2}, users=["alice"])`.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from barnabas.testing.broker import Broker
    from barnabas.testing.cluster import Cluster
    from barnabas.testing.configs import Configs

_MARK = "barnabas"
_CONFIGS, _BROKERS, _PROCESSES = "barnabas_configs", "barnabas_brokers", "barnabas_processes"
_START_TIMEOUT = "barnabas_start_timeout"
_OWN = {"barnabas_broker", "barnabas_cluster", "barnabas_process_cluster"}
_SHARED = {"barnabas_session_broker", "barnabas_session_cluster"}


class _PlainFinder(MetaPathFinder):
    """The finder of Barnabas's modules in front of pytest's, which would rewrite their assertions.

    pytest rewrites every module of a distribution that has a plugin. For those of a broker this
    takes 3 s of CPU, in each process if the result cannot be stored next to the modules. The
    packages of this module are imported before it: their docstrings forbid the rewriting.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        ours = fullname.startswith("barnabas.") or fullname == "pyspark_barnabas"
        return PathFinder.find_spec(fullname, path, target) if ours else None


_FINDER = _PlainFinder()


def pytest_addoption(parser: pytest.Parser) -> None:
    # No conftest file has been imported before this hook. Each run in the same process puts a
    # finder of pytest in front.
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
    sys.meta_path.insert(0, _FINDER)
    parser.addini(_CONFIGS, "Kafka's configuration keys of all brokers: KEY=VALUE", "linelist")
    parser.addini(_BROKERS, "number of brokers of a cluster", default="3")
    parser.addini(_PROCESSES, "run each broker of a cluster in a process of its own", "bool")
    parser.addini(_START_TIMEOUT, "seconds that a start of brokers may take", default="30")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{_MARK}(configs, **arguments): arguments of a test's own brokers"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    used = set(getattr(item, "fixturenames", ()))
    if item.get_closest_marker(_MARK) and used & _SHARED and not used & _OWN:
        _fail(
            f"the mark {_MARK} has no effect on {', '.join(sorted(used & _SHARED))}, which many "
            f"tests share: override the fixture {_CONFIGS}, or use a broker of the test's own"
        )


@pytest.fixture(scope="session")
def barnabas_configs() -> "Configs":
    """Return Kafka's configuration keys for all brokers; override it with `scope="session"`."""
    return {}


@pytest.fixture
def barnabas_broker(
    request: pytest.FixtureRequest, barnabas_configs: "Configs"
) -> "Iterator[Broker]":
    """Return a running broker for one test, on a free port, with an empty data directory."""
    configs, arguments = _marked(request)
    yield from _broker(request, {**barnabas_configs, **configs}, arguments)


@pytest.fixture(scope="session")
def barnabas_session_broker(
    request: pytest.FixtureRequest, barnabas_configs: "Configs"
) -> "Iterator[Broker]":
    """Return a running broker for all tests of the run: each test needs its own names."""
    yield from _broker(request, barnabas_configs, {})


@pytest.fixture
def barnabas_cluster(
    request: pytest.FixtureRequest, barnabas_configs: "Configs"
) -> "Iterator[Cluster]":
    """Return three running brokers in one thread, with replicated topics, for one test."""
    configs, arguments = _marked(request)
    yield from _cluster(request, {**barnabas_configs, **configs}, arguments)


@pytest.fixture
def barnabas_process_cluster(
    request: pytest.FixtureRequest, barnabas_configs: "Configs"
) -> "Iterator[Cluster]":
    """Return three running brokers for one test; each is a process, to be killed and paused."""
    configs, arguments = _marked(request)
    yield from _cluster(request, {**barnabas_configs, **configs}, {"processes": True, **arguments})


@pytest.fixture(scope="session")
def barnabas_session_cluster(
    request: pytest.FixtureRequest, barnabas_configs: "Configs"
) -> "Iterator[Cluster]":
    """Return three running brokers for all tests of the run: each test needs its own names, and
    removes its levers."""
    yield from _cluster(request, barnabas_configs, {})


def _broker(
    request: pytest.FixtureRequest, configs: "Configs", arguments: dict[str, Any]
) -> "Iterator[Broker]":
    from barnabas.testing.broker import Broker

    options = {"start_timeout": _ini_start_timeout(request.config)}
    with Broker({**_ini_configs(request), **configs}, **{**options, **arguments}) as broker:
        yield broker


def _cluster(
    request: pytest.FixtureRequest, configs: "Configs", arguments: dict[str, Any]
) -> "Iterator[Cluster]":
    from barnabas.testing.cluster import Cluster

    options = {
        "brokers": _ini_brokers(request.config),
        "processes": request.config.getini(_PROCESSES),
        "start_timeout": _ini_start_timeout(request.config),
    }
    with Cluster({**_ini_configs(request), **configs}, **{**options, **arguments}) as cluster:
        yield cluster


def _ini_configs(request: pytest.FixtureRequest) -> dict[str, str]:
    configs = {}
    for line in request.config.getini(_CONFIGS):
        key, equals, value = line.partition("=")
        if not equals:
            _fail(f"{_CONFIGS}: {line!r} is not KEY=VALUE")
        configs[key.strip()] = value.strip()
    return configs


def _ini_brokers(config: pytest.Config) -> int:
    text = config.getini(_BROKERS)
    if not str(text).isdecimal():
        _fail(f"{_BROKERS}: {text!r} is not a number")
    return int(text)


def _ini_start_timeout(config: pytest.Config) -> float:
    text = config.getini(_START_TIMEOUT)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        _fail(f"{_START_TIMEOUT}: {text!r} is not a positive number of seconds")
    return seconds


def _marked(request: pytest.FixtureRequest) -> tuple["Configs", dict[str, Any]]:
    """Return the configurations and the arguments of a test's marks: the closest one wins."""
    configs: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers(_MARK))):
        keywords: Mapping[str, Any] = mark.kwargs
        given = (*mark.args, *([keywords["configs"]] if "configs" in keywords else []))
        if len(given) > 1:
            _fail(f"the mark {_MARK} takes one mapping of configurations")
        configs |= dict(*given)
        arguments |= {key: value for key, value in keywords.items() if key != "configs"}
    return configs, arguments


def _fail(reason: str) -> NoReturn:
    pytest.fail(reason, pytrace=False)
