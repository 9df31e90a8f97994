"""The rules of the house that a machine can check; docs/ARCHITECTURE.md has their reasons."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.config.topic import BROKER_SYNONYMS, TopicConfig
from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.metrics.registry import Family, Registry

ROOT = Path(__file__).parents[1]
FLOORS = (
    "broker",
    "cli",
    "client",
    "config",
    "coordinator",
    "metrics",
    "protocol",
    "storage",
    "testing",
    "verify",
)
OUTSIDE = ("tests", "benchmarks", "docs")
LONGEST_FILE = 400
LONGEST_FUNCTION = 60
NOT_ON_FLOOR_ONE = {
    "asyncio",
    "concurrent",
    "io",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "selectors",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
}


@cache
def sources(*folders: str) -> tuple[Path, ...]:
    return tuple(path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), path)


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(path)))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a module imports."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def place(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


@pytest.mark.parametrize("floor", FLOORS)
def test_a_floor_is_imported_through_its_relative_link(floor):
    link = ROOT / "barnabas" / floor
    assert link.is_symlink()
    assert link.readlink() == Path("..") / floor
    assert (ROOT / floor / "__init__.py").exists()


def test_every_folder_with_an_init_file_is_a_floor():
    assert sorted(path.parent.name for path in ROOT.glob("*/__init__.py")) == sorted(
        (*FLOORS, "barnabas")
    )


def test_nobody_imports_a_bare_floor_or_a_relative_name():
    offenders = [
        place(path, line)
        for path in sources(*FLOORS, *OUTSIDE, "barnabas")
        for line, name in imports(path)
        if name.startswith(".") or name.partition(".")[0] in FLOORS
    ]
    assert offenders == []


def test_floor_one_has_no_io_no_clock_and_no_event_loop():
    offenders = [
        f"{place(path, line)} imports {name}"
        for path in sources("protocol", "config", "metrics")
        for line, name in imports(path)
        if name.partition(".")[0] in NOT_ON_FLOOR_ONE
    ]
    assert offenders == []


def test_rooms_are_small():
    offenders = [
        f"{path.relative_to(ROOT)}: {lines} lines"
        for path in sources(*FLOORS, *OUTSIDE)
        if (lines := len(path.read_text().splitlines())) > LONGEST_FILE
    ]
    assert offenders == []


def test_functions_fit_on_a_screen():
    offenders = [
        f"{place(path, node.lineno)} {node.name}: {lines} lines"
        for path in sources(*FLOORS, *OUTSIDE)
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > LONGEST_FUNCTION
    ]
    assert offenders == []


def test_every_module_says_what_it_is():
    offenders = [
        str(path.relative_to(ROOT))
        for path in sources(*FLOORS)
        if path.read_text().strip() and ast.get_docstring(tree(path)) is None
    ]
    assert offenders == []


def test_nothing_is_left_for_later():
    marks = re.compile(r"#\s*(TODO|FIXME|XXX|HACK)\b")
    offenders = [
        place(path, number)
        for path in sources(*FLOORS, *OUTSIDE)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if marks.search(line)
    ]
    assert offenders == []


def test_no_error_is_swallowed():
    """An empty handler hides what happened; contextlib.suppress at least names what is meant."""
    offenders = [
        place(path, node.lineno)
        for path in sources(*FLOORS)
        for node in nodes(path)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or all(isinstance(line, ast.Pass) for line in node.body))
    ]
    assert offenders == []


def test_no_state_is_global():
    offenders = [
        place(path, node.lineno)
        for path in sources(*FLOORS)
        for node in nodes(path)
        if isinstance(node, ast.Global)
    ]
    assert offenders == []


def test_a_handler_has_the_name_of_its_message():
    messages = {path.name for path in (ROOT / "protocol" / "messages").glob("*.py")}
    handlers = {path.name for path in (ROOT / "broker" / "handlers").glob("*.py")}
    assert handlers <= messages


READ_THROUGH = {
    "advertised_listeners": "resolved_listeners",
    "inter_broker_listener_name": "inter_broker_listener",
    "listener_security_protocol_map": "resolved_listeners",
    "listeners": "resolved_listeners",
    "log_dir": "data_directories",
    "log_dirs": "data_directories",
}
"""Keys that the broker's configuration offers together with others, under a name of its own."""


def attributes_read(*folders: str) -> set[str]:
    return {
        node.attr
        for path in sources(*folders)
        for node in nodes(path)
        if isinstance(node, ast.Attribute)
    }


def test_a_key_that_is_accepted_is_read_by_somebody():
    read = attributes_read(*(floor for floor in FLOORS if floor != "config"))
    inherited = {name for names in BROKER_SYNONYMS.values() for name in names}
    keys = [key for name, key in BrokerConfig.KEYS.items() if name not in inherited]
    offenders = [
        key.name
        for key in [*keys, *TopicConfig.KEYS.values()]
        if READ_THROUGH.get(key.attribute, key.attribute) not in read
    ]
    assert offenders == []


def test_a_metric_that_is_announced_is_fed_by_somebody():
    fed = attributes_read(*(floor for floor in FLOORS if floor != "metrics"))
    rooms = vars(BrokerMetrics(Registry())).items()
    announced = {name for name, room in rooms if isinstance(room, Family)} | {
        name for _, room in rooms if not isinstance(room, Family) for name in vars(room)
    }
    assert announced - fed == set()
