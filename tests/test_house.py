"""The rules of the code base that a machine can check; docs/ARCHITECTURE.md has the reasons."""

import ast
import os
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.config.group_keys import GroupConfig
from barnabas.config.inert_keys import InertKeys, InertTopicDefaults, InertTopicKeys
from barnabas.config.topic import BROKER_SYNONYMS, TopicConfig
from barnabas.metrics.catalogue import BrokerMetrics
from barnabas.metrics.registry import Family, Registry
from tests.support.repository import links

# Each worker would parse the code.
pytestmark = pytest.mark.xdist_group("house")

ROOT = Path(__file__).parents[1]
FLOORS = (
    "broker",
    "cli",
    "client",
    "config",
    "console",
    "coordinator",
    "faults",
    "metrics",
    "operations",
    "pipeline",
    "protocol",
    "registry",
    "security",
    "storage",
    "testing",
    "verify",
)
LINKS = ("broker", "config", "coordinator", "protocol", "storage")
"""The links at the top of the repository, each to the folder of its name in `barnabas/`."""
OUTSIDE = ("tests", "benchmarks", "docs", "examples")
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
READ_SECRETS = {
    ROOT / "barnabas/security/config_providers.py",
    ROOT / "barnabas/security/tls.py",
}
"""Files of key stores (OpenSSL takes nothing else), and of secrets that a configuration names."""


@cache
def sources(*folders: str) -> tuple[Path, ...]:
    """Return the modules below folders of the repository; a folder without any is an error."""
    found = {folder: sorted((ROOT / folder).rglob("*.py")) for folder in folders}
    assert [folder for folder, paths in found.items() if not paths] == []
    return tuple(path for paths in found.values() for path in paths)


def floors(*folders: str) -> tuple[str, ...]:
    """Return folders of the package by their paths in the repository."""
    return tuple(f"barnabas/{folder}" for folder in folders)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), path)


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(path)))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything that a module imports."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def location(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_links_of_the_repository_are_the_five_at_the_top():
    assert links() == {name: f"barnabas/{name}" for name in LINKS}


@pytest.mark.skipif("CI" not in os.environ, reason="a working tree has the links")
def test_ci_runs_every_test_without_the_links():
    assert [name for name in LINKS if (ROOT / name).exists()] == []


def test_every_folder_with_an_init_file_is_a_floor():
    found = sorted(path.parent.name for path in (ROOT / "barnabas").glob("*/__init__.py"))
    assert found == [*FLOORS]


def test_every_folder_with_modules_is_a_package():
    """A build takes the folders that have an `__init__.py`."""
    offenders = {
        str(path.parent.relative_to(ROOT))
        for path in sources("barnabas")
        if not (path.parent / "__init__.py").exists()
    }
    assert offenders == set()


def test_nobody_imports_a_bare_floor_or_a_relative_name():
    offenders = [
        location(path, line)
        for path in sources("barnabas", *OUTSIDE)
        for line, name in imports(path)
        if name.startswith(".") or name.partition(".")[0] in FLOORS
    ]
    assert offenders == []


def test_floor_one_has_no_io_no_clock_and_no_event_loop():
    offenders = [
        f"{location(path, line)} imports {name}"
        for path in sources(*floors("protocol", "config", "metrics", "security"))
        if path not in READ_SECRETS
        for line, name in imports(path)
        if name.partition(".")[0] in NOT_ON_FLOOR_ONE
    ]
    assert offenders == []


def tier(path: Path) -> str:
    """Return the folder of `tests/` that a file is in, "" for a file directly in it."""
    folder, *inside = path.relative_to(ROOT / "tests").parts
    return folder if inside else ""


def test_tests_share_helpers_through_support_only():
    """A test file is imported by none; a tier imports its own helpers and those in `support`."""
    offenders = []
    for path in sources("tests"):
        own = tier(path)
        for line, name in imported_names(path):
            package, *parts = name.split(".")
            if package != "tests" or not parts:
                continue
            from_test = any(part.startswith("test_") for part in parts)
            if from_test or parts[0] not in (own, "support"):
                offenders.append(f"{location(path, line)} imports {name}")
    assert offenders == []


def imported_names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of each import, with the names that `from` imports."""
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)


def test_functions_fit_on_a_screen():
    offenders = [
        f"{location(path, node.lineno)} {node.name}: {lines} lines"
        for path in sources("barnabas", *OUTSIDE)
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > LONGEST_FUNCTION
    ]
    assert offenders == []


CARRYING_OUT = {"coordinator.py", "producer_ids.py", "waiters.py"}
"""Modules of the coordinators that ask the runtime, the store or a client's connection."""


def test_deciding_is_never_a_coroutine():
    """An await inside a decision would let another request in between its check and its change."""
    deciding = sources(
        *floors(
            "coordinator/group", "coordinator/transaction", "broker/controller/rules", "storage"
        )
    )
    offenders = [
        location(path, node.lineno)
        for path in deciding
        if path.name not in CARRYING_OUT
        for node in nodes(path)
        if isinstance(node, ast.AsyncFunctionDef | ast.Await)
    ]
    assert offenders == []


def test_no_pipe_is_read_by_a_transport():
    """A uvloop transport closes a pipe's descriptor twice: barnabas/broker/pipes.py reads pipes."""
    forbidden = ("connect_read_pipe", "connect_write_pipe", "create_subprocess_exec")
    offenders = [
        location(path, node.lineno)
        for path in sources("barnabas")
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr in forbidden
    ]
    assert offenders == []


def test_every_module_says_what_it_is():
    offenders = [
        str(path.relative_to(ROOT))
        for path in sources("barnabas")
        if path.read_text().strip() and ast.get_docstring(tree(path)) is None
    ]
    assert offenders == []


def test_nothing_is_left_for_later():
    marks = re.compile(r"#\s*(TODO|FIXME|XXX|HACK)\b")
    offenders = [
        location(path, number)
        for path in sources("barnabas", *OUTSIDE)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if marks.search(line)
    ]
    assert offenders == []


def test_no_error_is_swallowed():
    """An empty handler hides what happened; contextlib.suppress at least names what is meant."""
    offenders = [
        location(path, node.lineno)
        for path in sources("barnabas")
        for node in nodes(path)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or all(isinstance(line, ast.Pass) for line in node.body))
    ]
    assert offenders == []


def test_no_state_is_global():
    offenders = [
        location(path, node.lineno)
        for path in sources("barnabas")
        for node in nodes(path)
        if isinstance(node, ast.Global)
    ]
    assert offenders == []


def test_a_handler_has_the_name_of_its_message():
    messages = {path.name for path in sources(*floors("protocol/messages"))}
    handlers = {path.name for path in sources(*floors("broker/handlers"))}
    assert handlers <= messages


READ_THROUGH = {
    "additional_inter_broker_listeners": "broker_listeners",
    "advertised_listeners": "resolved_listeners",
    "inter_broker_listener_name": "inter_broker_listener",
    "listener_security_protocol_map": "resolved_listeners",
    "listeners": "resolved_listeners",
    "log_dir": "data_directories",
    "log_dirs": "data_directories",
    "sasl_oauthbearer_allow_unverified_issuer": "unverified_claims",
    "security_inter_broker_protocol": "inter_broker_listener",
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
    read = attributes_read(*floors(*({*FLOORS} - {"config"})))
    inherited = {name for names in BROKER_SYNONYMS.values() for name in names}
    for name in GroupConfig.KEYS:
        # A group inherits its value, which lies between two others.
        _, _, rest = name.partition(".")
        inherited |= {f"group.{name}", f"group.consumer.min.{rest}", f"group.consumer.max.{rest}"}
    keys = [key for name, key in BrokerConfig.KEYS.items() if name not in inherited]
    offenders = [
        key.name
        for key in [*keys, *TopicConfig.KEYS.values(), *GroupConfig.KEYS.values()]
        if READ_THROUGH.get(key.attribute, key.attribute) not in read
        and key.name not in InertTopicKeys.KEYS
    ]
    assert offenders == []


def test_a_key_without_effect_says_so():
    keys = [*InertKeys.KEYS.values(), *InertTopicKeys.KEYS.values()]
    keys += InertTopicDefaults.KEYS.values()
    assert [key.name for key in keys if not key.doc.startswith("Has no effect: ")] == []


def test_a_metric_that_is_announced_is_fed_by_somebody():
    fed = attributes_read(*floors(*({*FLOORS} - {"metrics"})))
    rooms = vars(BrokerMetrics(Registry())).items()
    announced = {name for name, room in rooms if isinstance(room, Family)} | {
        name for _, room in rooms if not isinstance(room, Family) for name in vars(room)
    }
    assert announced - fed == set()


# --- language and cohesion: CONTRIBUTING.md has the rules

HIDES_THE_SUBJECT = re.compile(
    r"(What|Whatever|Who|Whoever|Whose|Whom|Of|Where|How|Those|Which|That)\b"
)
RIDDLES = re.compile(
    r"\b([Ww]hoever|[Ss]omebody|[Nn]obody|[Aa]nybody|[Ee]verybody|is none|there is not"
    r"|[Ee]rrands?|[Dd]iary|[Ww]aiting room)\b"
)


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring, those of attributes and constants included."""
    for node in nodes(path):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield statement.lineno, value.value


def test_docstrings_begin_with_a_verb_or_a_noun():
    offenders = [
        f"{location(path, line)} {text.strip().splitlines()[0]}"
        for path in sources("barnabas", *OUTSIDE)
        for line, text in docstrings(path)
        if HIDES_THE_SUBJECT.match(text.strip())
    ]
    assert offenders == []


def test_sentences_name_their_subject():
    texts = [*sources("barnabas", *OUTSIDE), *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    offenders = [
        f"{location(path, number)} {line.strip()}"
        for path in texts
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if RIDDLES.search(line)
    ]
    assert offenders == []


@cache
def import_graph() -> dict[str, set[str]]:
    """Return the modules of the project that each module imports, anywhere in it."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in sources("barnabas")
        if path.name != "__init__.py"
    }
    return {
        module: {
            found
            for _, name in imported_names(path)
            if (found := name if name in modules else name.rpartition(".")[0]) in modules
        }
        for module, path in modules.items()
    }


def test_no_module_imports_itself_through_others():
    graph = {module: set(imported) for module, imported in import_graph().items()}
    while leaves := {module for module, imported in graph.items() if not imported & graph.keys()}:
        for module in leaves:
            del graph[module]
    assert graph == {}, "these modules import each other, or modules that do"


AREAS = ("cli", "console", "faults", "pipeline", "testing", "verify")
"""Floors whose words may differ from those of brokers and clients."""
SHARED_NAMES = {
    "Connection": "the two ends of a connection",
    "Message": "the client's is what Kafka's clients call so",
    "Producer": "the client's is what Kafka's clients call so",
}
"""Names of two classes, with the reason."""
MODELS = ("operations/answers", "faults/http/models", "protocol/messages", "protocol/internal")
"""Modules of classes that describe JSON or messages, with the names that these have."""


def test_a_class_name_means_one_thing():
    places: dict[tuple[str, str], list[str]] = {}
    for path in sources("barnabas"):
        name = path.relative_to(ROOT / "barnabas").as_posix()
        floor = name.partition("/")[0]
        for node in tree(path).body:
            if (
                isinstance(node, ast.ClassDef)
                and not node.name.startswith("_")
                and not name.startswith(MODELS)
            ):
                key = (floor if floor in AREAS else "", node.name)
                places.setdefault(key, []).append(location(path, node.lineno))
    shared = {name: found for (_, name), found in places.items() if len(found) > 1}
    assert sorted(shared) == sorted(SHARED_NAMES), shared


ONE_FILE_EACH = (
    "broker.handlers",
    "operations.answers",
    "console.pages",
    "protocol.messages",
    "protocol.internal",
    "verify.workloads",
)
"""Folders with a file for each API, group of commands, page, message or workload, found by its
name."""
SMALL_MODULE = 60


@cache
def imported_late() -> set[str]:
    """Return the modules that some function imports when it is first called, for a quick start."""
    return {
        name.rpartition(".")[0] if name not in import_graph() else name
        for path in sources("barnabas")
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and node.col_offset
        for name in (f"{node.module}.{alias.name}" for alias in node.names)
    }


def test_a_small_module_has_more_than_one_importer():
    importers: dict[str, list[str]] = {}
    for module, imported in import_graph().items():
        for each in imported:
            importers.setdefault(each, []).append(module)
    offenders = [
        f"{module} ({lines} lines): merge it into {by[0]}"
        for module, by in importers.items()
        if len(by) == 1
        and module not in imported_late()
        and not module.removeprefix("barnabas.").startswith(ONE_FILE_EACH)
        and (lines := len((ROOT / module_path(module)).read_text().splitlines())) <= SMALL_MODULE
    ]
    assert offenders == []


def module_path(module: str) -> str:
    return module.replace(".", "/") + ".py"


IN_TEXT = re.compile(r"from (barnabas[\w.]*) import ([\w, ]+)")
"""An import in a program that is a text, for a process of its own: no type checker reads it."""


def exists(module: str, name: str) -> bool:
    """Whether a name can be imported; True if a module needs a package that is not installed."""
    try:
        return hasattr(import_module(module), name) or find_spec(f"{module}.{name}") is not None
    except ImportError as error:
        return not (error.name or module).startswith("barnabas")


def missing_in_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of what programs in a module import and nobody has."""
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for module, names in IN_TEXT.findall(node.value):
                for name in (each.split()[0] for each in names.split(",") if each.strip()):
                    if not exists(module, name):
                        yield node.lineno, f"{module}.{name}"


def test_programs_that_are_texts_import_names_that_exist():
    offenders = [
        f"{location(path, line)}: {name}"
        for path in sources(*OUTSIDE)
        for line, name in missing_in_texts(path)
    ]
    assert offenders == []


def test_absent_names_in_programs_are_found(tmp_path):
    path = tmp_path / "planted.py"
    program = "P = 'from OURS.cli.tables import absent as a, cell; from OURS.cli.lost import x'"
    path.write_text(program.replace("OURS", "barnabas"))
    assert list(missing_in_texts(path)) == [
        (1, "barnabas.cli.tables.absent"),
        (1, "barnabas.cli.lost.x"),
    ]
