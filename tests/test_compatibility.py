"""The documents say what the code does, and the files and tests that they name exist."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from barnabas.config.broker import BrokerConfig
from barnabas.config.inert_keys import InertTopicDefaults
from barnabas.config.properties import parse_properties
from barnabas.protocol.apis import FIRST_OWN_KEY
from docs.build.commands import COMMANDS, commands
from docs.build.differences import MISSING
from docs.build.example_properties import EXAMPLE, example
from docs.build.floors import ARCHITECTURE, architecture
from docs.build.generate import (
    BETWEEN_BROKERS,
    CONFIGURATION,
    EVENTS,
    GONE,
    GROUPS,
    SECURITY,
    TARGET,
    TRANSACTIONS,
    configuration,
    document,
    events,
    group_states,
    security,
    served,
    transaction_states,
)

KAFKA_4_4 = {
    *range(4),
    *range(8, 52),
    55,
    57,
    60,
    61,
    64,
    65,
    66,
    68,
    69,
    71,
    72,
    *range(74, 82),
} | {*range(83, 95)}
"""Keys of the APIs that a broker of Kafka 4.4 answers clients and other brokers."""
ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "barnabas").rglob("*.py"))
FLOORS = {path.parent.name for path in (ROOT / "barnabas").glob("*/__init__.py")}
PAGES = (
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "examples" / "README.md",
    ROOT / "findings" / "README.md",
    ROOT / "benchmarks" / "RESULTS.md",
)
assert len(PAGES) > 20


def test_the_document_is_what_the_code_generates():
    assert TARGET.read_text() == document(), "run `python -m docs.build.generate`"


def test_reference_of_commands_is_that_of_the_command_line():
    assert COMMANDS.read_text() == commands(), "run `python -m docs.build.generate`"


def test_reference_of_keys_is_that_of_the_configuration():
    assert CONFIGURATION.read_text() == configuration(), "run `python -m docs.build.generate`"


def test_what_is_between_brokers_is_marked_so_and_what_kafka_no_longer_has_too():
    rows = {
        int(cells[1]): cells[3:6]
        for line in document().splitlines()
        if len(cells := [cell.strip() for cell in line.split("|")]) == 7 and cells[1].isdigit()
    }
    assert {key for key, (_, _, who) in rows.items() if who == "brokers"} == BETWEEN_BROKERS
    assert {key for key, (_, of_kafka, _) in rows.items() if "none" in of_kafka} == {
        *GONE,
        *(key for key in rows if key >= FIRST_OWN_KEY),
    }
    assert rows[4][:2] == ["5-7", "none (3.9: 0-7)"]
    assert rows[24][2].startswith("clients: 0-3")


def test_the_drawings_of_states_are_those_of_the_code():
    assert GROUPS.read_text() == group_states(), "run `python -m docs.build.generate`"
    assert TRANSACTIONS.read_text() == transaction_states(), "run `python -m docs.build.generate`"


def test_pictures_of_the_floors_are_those_of_the_imports():
    assert ARCHITECTURE.read_text() == architecture(), "run `python -m docs.build.generate`"


def test_the_table_of_rights_is_what_the_handlers_declare():
    assert SECURITY.read_text() == security(), "run `python -m docs.build.generate`"


def test_table_of_events_has_the_kinds_of_the_code():
    assert EVENTS.read_text() == events(), "run `python -m docs.build.generate`"


def test_example_of_properties_has_the_keys_of_the_code():
    assert EXAMPLE.read_text() == example(), "run `python -m docs.build.generate`"


def test_every_default_in_the_example_is_valid_and_the_default():
    """All keys at once, as of a user who removes each # in front of a key."""
    lines = EXAMPLE.read_text().splitlines()
    keys = [line[1:] for line in lines if re.match(r"#[^#\s]+=", line)]
    given = {name: text for name, text in parse_properties("\n".join(keys)).items() if text}
    assert len(keys) == len(BrokerConfig.KEYS) - len(InertTopicDefaults.KEYS)
    config, default = BrokerConfig.from_properties(given, strict=True), BrokerConfig()
    changed = {name: text for name in given if (text := config.text(name)) != default.text(name)}
    assert changed == {}


def in_code(page: Path) -> list[str]:
    """Return the words of a page that are set in code, those of code blocks included."""
    text = page.read_text()
    blocks = re.findall(r"^ *```.*?^ *```", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S))
    return [word.strip(".,;:()'\"") for part in (*blocks, *spans) for word in part.split()]


@cache
def names_in(path: Path) -> set[str]:
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, definitions)}


def is_path(word: str) -> bool:
    """Return whether a word names a file or folder of the repository."""
    first, slash, _ = word.partition("/")
    inside = first and slash and (ROOT / first).is_dir() and re.fullmatch(r"[\w./-]+", word)
    return bool(inside or re.fullmatch(r"[\w./-]+\.py", word))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page):
    # Readers save some programs under the name in the first line, and a command writes one.
    written = r"^```python\n# (\w+\.py)$|^barnabas pipeline package .* -o (\w+\.py)$"
    saved = {name for each in re.findall(written, page.read_text(), re.MULTILINE) for name in each}
    paths = {word.partition("::")[0] for word in in_code(page)} - saved
    assert {path for path in paths if is_path(path) and not (ROOT / path).exists()} == set()
    # The folders themselves are in barnabas/.
    assert {path for path in paths if path.partition("/")[0] in FLOORS and "/" in path} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_a_page_names_exist(page):
    named = [word.partition("::") for word in in_code(page) if "::" in word]
    tests = {(path, name) for path, _, name in named if path.endswith(".py")}
    offenders = {
        f"{path}::{name}"
        for path, name in tests
        if not (ROOT / path).exists() or name not in names_in(ROOT / path)
    }
    assert offenders == set()


def test_identifiers_that_the_architecture_names_exist():
    """An identifier has an underscore or a capital letter inside, as `replay_marker` or `RunId`."""
    identifier = re.compile(r"\w*(?:[A-Za-z]_|[a-z][A-Z])\w*")
    named = {
        part
        for word in in_code(ARCHITECTURE)
        if "/" not in word and "::" not in word
        for part in word.split(".")
        if identifier.fullmatch(part)
    }
    used = {name for path in MODULES for name in re.findall(r"\w+", path.read_text())}
    assert len(named) > 10
    assert named - used == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page):
    text = page.read_text()
    links = re.findall(r"\]\(([^)#\s]+)", text) + re.findall(r'(?:src|href)="([^"#]+)', text)
    inside = [link for link in links if "://" not in link]
    assert [link for link in inside if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_headings_that_a_page_links_to_exist(page):
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text())
    inside = [(page.parent / link if link else page, name) for link, name in links]
    assert [
        f"{target.name}#{name}"
        for target, name in inside
        if target.suffix == ".md" and name not in anchors(target)
    ] == []


@cache
def anchors(page: Path) -> set[str]:
    """Return the names that headings of a page have as the targets of links."""
    # A comment in a program is no heading.
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    names = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
    repeated = {f"{name}-{n}" for name, many in Counter(names).items() for n in range(1, many)}
    return repeated.union(names)


def test_every_invariant_names_its_test():
    text = ARCHITECTURE.read_text()
    section = text.partition("## Invariants that are not obvious")[2].partition("\n## ")[0]
    entries = section.split("\n- ")[1:]
    assert len(entries) > 50
    assert [entry[:60] for entry in entries if "::test_" not in entry] == []


def test_an_api_of_kafka_is_served_or_missing_with_a_reason():
    keys = [api.key for api, _ in served() if api.key < FIRST_OWN_KEY]
    missing = [key for reason in MISSING for key in reason.apis]
    assert len({*keys, *missing}) == len(keys) + len(missing), (
        f"MISSING in docs/build/differences.py has APIs that are served: { ({*keys} & {*missing}) }"
    )
    assert {*keys, *missing} - BETWEEN_BROKERS == KAFKA_4_4, (
        "MISSING in docs/build/differences.py has the APIs of Kafka that are not served"
    )


@pytest.mark.parametrize("row", served(), ids=lambda row: row[0].name)
def test_a_handler_serves_no_version_that_its_messages_lack(row):
    api, versions = row
    assert set(versions) <= set(api.versions)
