"""The pictures of the floors in ARCHITECTURE.md, drawn from pyproject.toml and from the imports."""

import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"
BEGIN = "<!-- generated: {} -->"
END = "<!-- end of generated: {} -->"
Edges = Mapping[str, set[str]]


def architecture() -> str:
    """Return the text of docs/ARCHITECTURE.md, with its generated parts renewed."""
    return renewed(ARCHITECTURE, {"floors": _floors(), "broker": _broker()})


def renewed(page: Path, parts: Mapping[str, Iterable[str]]) -> str:
    """Return the text of a page with other lines in its generated parts."""
    text = page.read_text()
    for name, lines in parts.items():
        before, begin, rest = text.partition(BEGIN.format(name))
        _, end, after = rest.partition(END.format(name))
        if not (begin and end):
            raise ValueError(f"{page.name} has no part {name!r}")
        text = "".join((before, begin, "\n", *(f"{line}\n" for line in lines), end, after))
    return text


def _floors() -> Iterator[str]:
    yield from _picture("barnabas", _layers("barnabas"))


def _broker() -> Iterator[str]:
    yield from _picture("barnabas.broker", _layers("barnabas.broker"))


def _layers(package: str) -> list[list[str]]:
    """Return the layers of import-linter's contract for a package, the highest first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (layers,) = (
        contract["layers"]
        for contract in project["tool"]["importlinter"]["contracts"]
        if contract.get("containers") == [package]
    )
    return [[name.strip() for name in layer.split("|")] for layer in layers]


def _picture(package: str, layers: Sequence[Sequence[str]]) -> Iterator[str]:
    """Draw the layers as boxes, and the imports between their members as arrows."""
    shown = [[name for name in layer if name != "__main__"] for layer in layers]
    edges = _without_detours(_imports(package, [name for layer in shown for name in layer]))
    yield from ("", "```mermaid", "flowchart TD")
    for number, layer in enumerate(filter(None, shown)):
        yield f'    subgraph layer{number}[" "]'
        yield from (f'        {name}["{_label(package, name)}"]' for name in layer)
        yield "    end"
    for source in (name for layer in shown for name in layer):
        yield from (f"    {source} --> {target}" for target in sorted(edges[source]))
    yield from ("```", "")


def _label(package: str, name: str) -> str:
    path = _folder(package) / name
    return f"{name}/" if path.is_dir() else f"{name}.py"


def _imports(package: str, names: Sequence[str]) -> Edges:
    """Return for each member of a package the other members that it imports."""
    return {name: _imported(package, name) & {*names} - {name} for name in names}


@cache
def _imported(package: str, name: str) -> frozenset[str]:
    path = _folder(package) / name
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    if not files:
        raise ValueError(f"{path} has no modules")
    prefix = f"{package}."
    return frozenset(
        module.removeprefix(prefix).partition(".")[0]
        for file in files
        for module in _modules(file)
        if module.startswith(prefix)
    )


def _folder(package: str) -> Path:
    return ROOT.joinpath(*package.split("."))


def _modules(file: Path) -> Iterator[str]:
    """Yield the full name of everything that a file imports."""
    for node in ast.walk(ast.parse(file.read_text(), file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _without_detours(edges: Edges) -> Edges:
    """Leave an import out if the target is also reached through another import."""
    return {
        source: {
            target
            for target in targets
            if not any(target in _reached(edges, other) for other in targets - {target})
        }
        for source, targets in edges.items()
    }


def _reached(edges: Edges, source: str) -> set[str]:
    reached: set[str] = set()
    waiting: Iterable[str] = edges[source]
    while waiting:
        reached |= {*waiting}
        waiting = {after for name in waiting for after in edges[name]} - reached
    return reached
