"""Rows on a terminal: tables and cards that cut no name and no value.

A row alone is a card, with a field a line. So are rows whose table would be wider than the
terminal, even with its sentences folded between words, its paths after slashes, and without columns
that are empty.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import click

from barnabas.operations.answers.model import Answer, fields_of
from barnabas.operations.quantities import duration_text, size_text, time_text

_ABOVE_ASCII: Final = "\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_UNSEEN: Final = re.compile(f"[{_ABOVE_ASCII}]")
_CONTROLS: Final = re.compile(f"[\x00-\x1f{_ABOVE_ASCII}]")
"""Control characters of ASCII and Latin-1, ends of lines, and changes of the writing direction."""
_SENTENCES: Final = frozenset({"event", "meaning", "problem", "result", "why"})
"""The columns with sentences; those with names are never folded."""
_PATH: Final = "log_dir"
"""The column with a path, which stands last in a table."""
_SHORT: Final = 20
"""The width from which on the name of a directory is folded too."""
_SIZE: Final = "bytes"
"""The name of a size, or the end of its name."""
_SHOWN_SIZE: Final = re.compile(r"[0-9]+(\.[0-9])?([KMGT]i)?B")
COLUMNS: Final = 80
"""The width of a terminal for which banners are made; `fold` keeps their lines in it."""
_GAP: Final = 2
_TIMES: Final = ("at_ms", "timestamp_ms")
"""The ends of names of times in ms since 1970; other names that end with `_ms` are durations."""


def fold(line: str, at: str, by: str) -> str:
    """Return a line of a banner, with `by` in place of the first `at` if it is too wide."""
    return line if len(line) <= COLUMNS else line.replace(at, by, 1)


def escape(text: str) -> str:
    r"""Replace characters that a terminal would obey by escapes, such as `\x1b` and `\n`."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def escape_json(text: str) -> str:
    r"""Replace characters that a terminal would obey by escapes of JSON, such as `\u009b`.

    JSON has those below U+0020 only as the ends of its lines.
    """
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def tell(text: str, *, err: bool = False) -> None:
    """Print a line for people; on a terminal, control characters in it are escaped."""
    stream = sys.stderr if err else sys.stdout
    click.echo(escape(text) if stream.isatty() else text, err=err, color=True)


def cell(value: Any) -> str:
    """Return a value as text: `-` for None and empty ones, lists with commas, fields with `=`."""
    if isinstance(value, Answer):
        value = fields_of(value)
    elif isinstance(value, Enum):
        value = value.value
    if value in (None, [], {}):
        return "-"
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{key}={cell(item)}" for key, item in value.items())
    return str(value)


def lines_of(row: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield name and text of each field; a list has a line for each item, unless of numbers."""
    for name, value in row.items():
        if isinstance(value, list) and not all(isinstance(item, int) for item in value):
            yield from ((name, cell(item)) for item in value)
        else:
            yield name, cell(value)


def for_people(
    columns: Iterable[str], rows: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return columns and rows of a JSON answer with times as dates and with units of durations.

    The names lose the unit then: `expires_at_ms` is `expires`. A fraction of ms stays as it is.
    """
    shown: dict[str, list[Any]] = {}
    for column in columns:
        values = [row.get(column) for row in rows]
        if column.endswith("_ms") and all(isinstance(each, int | None) for each in values):
            text = _time if column.endswith(_TIMES) else duration_text
            values = [None if each is None else text(each) for each in values]
            column = column.removesuffix("_ms").removesuffix("_at")
        shown[column] = values
    return list(shown), [
        dict(zip(shown, row, strict=True)) for row in zip(*shown.values(), strict=True)
    ]


def _time(at_ms: int) -> str | None:
    # Kafka's timestamp of a record without one is -1.
    return time_text(at_ms) if at_ms >= 0 else None


def print_card(row: Mapping[str, Any]) -> None:
    """Print one row on a terminal."""
    width = max(map(len, row))
    for name, text in lines_of(row):
        click.echo(f"{name:{width}}{' ' * _GAP}{escape(text)}")


def print_rows(
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    title: str,
    *,
    table: bool = False,
) -> None:
    """Print rows on a terminal; with `table` a row alone is one too."""
    if title:
        click.echo(escape(title))
    columns, rows = _with_units(columns, rows)
    if table or len(rows) != 1:
        used = [each for each in columns if any(row.get(each) is not None for row in rows)]
        if _print_table(columns, rows) or _print_table(used, rows):
            return
    for index, row in enumerate(rows):
        if index:
            click.echo()
        print_card({column: row.get(column) for column in columns})


def _with_units(
    columns: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[dict[str, Any]]]:
    """Return columns and rows with units of sizes; `total_bytes` is `total`, and `bytes` `size`.

    Only a terminal has them: programs compare and add the numbers of other output.
    """
    sizes = {
        column: column.removesuffix(_SIZE).rstrip("_") or "size"
        for column in columns
        if column.endswith(_SIZE)
    }
    return [sizes.get(column, column) for column in columns], [
        {
            sizes.get(name, name): _size(each) if name in sizes else each
            for name, each in row.items()
        }
        for row in rows
    ]


def _size(value: Any) -> Any:
    if not isinstance(value, int):
        return value
    # Kafka's size of a file system that is not known is -1.
    return size_text(value) if value >= 0 else None


def _print_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Print rows as a table; return False if the terminal is too narrow for it."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    columns = sorted(columns, key=lambda column: column == _PATH)
    # A Text, because Rich would read [names] in a string as markup.
    cells = [[Text(escape(cell(row.get(column)))) for column in columns] for row in rows]
    widths = _widths(columns, cells, console.width)
    if widths is None:
        return False
    if columns[-1:] == [_PATH]:
        for each in cells:
            each[-1] = Text("\n".join(_path_lines(each[-1].plain, widths[-1], cell_len)))
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for column, width in zip(columns, widths, strict=True):
        right = all(_is_quantity(row.get(column)) for row in rows)
        table.add_column(column, justify="right" if rows and right else "left", width=width)
    for each in cells:
        table.add_row(*each)
    console.print(table)
    return True


def _widths(columns: Sequence[str], cells: Sequence[Sequence[Any]], width: int) -> list[int] | None:
    """Return the widths of columns that together fit into `width`; None if no widths do."""
    widths, least = [], []
    for column, *texts in zip(columns, *cells, strict=True):
        widths.append(max([len(column), *(text.cell_len for text in texts)]))
        if column in _SENTENCES:
            words = [word.cell_len for text in texts for word in text.split(" ")]
        elif column == _PATH:
            parts = (text.split("/", include_separator=True) for text in texts)
            longest = max((part.cell_len for each in parts for part in each), default=0)
            words = [min(longest, _SHORT)]
        else:
            words = [widths[-1]]
        least.append(max([len(column), *words]))
    excess = sum(widths) + _GAP * (len(widths) - 1) - width
    for index, (wanted, needed) in enumerate(zip(widths, least, strict=True)):
        taken = min(max(excess, 0), wanted - needed)
        widths[index] -= taken
        excess -= taken
    return widths if excess <= 0 else None


def _path_lines(path: str, width: int, length: Callable[[str], int]) -> Iterable[str]:
    """Fold a path after its slashes, and a name in it that is longer than a line."""
    line = ""
    for part in re.findall("[^/]*/|[^/]+", path):
        if line and length(line + part) > width:
            yield line
            line = ""
        for character in part:
            if line and length(line + character) > width:
                yield line
                line = ""
            line += character
    yield line


def _is_quantity(value: Any) -> bool:
    if isinstance(value, str):
        return _SHOWN_SIZE.fullmatch(value) is not None
    return isinstance(value, int | float | None)
