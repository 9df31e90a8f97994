"""The numbers of a full run, as a part of docs/RELIABILITY.md."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.chaos.cells import CELLS

RESULTS: Final = Path(__file__).with_name("results.json")
PAGE: Final = Path(__file__).parents[2] / "docs" / "RELIABILITY.md"
BEGIN, END = "<!-- numbers: python -m tests.chaos --page -->", "<!-- end of the numbers -->"

_BARRED: Final = {cell.name for cell in CELLS if cell.bar is not None}
_UNITS: Final = {"damaged": "files damaged", "held": "requests held"}
"""The unit that a cell counts, by the beginning of the cell's name."""
_OTHERS: Final = "others, such as an exit code or an expired session"


def write(results: dict[str, Any]) -> None:
    """Put the numbers of a run into the page."""
    PAGE.write_text(with_numbers(PAGE.read_text(), results))


def with_numbers(page: str, results: dict[str, Any]) -> str:
    """Return the page with the numbers of this run."""
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n\n{numbers(results)}\n{END}{after}"


def numbers(results: dict[str, Any]) -> str:
    """Return a summary, and a line for each cell."""
    cells = results["cells"]
    done = [cell for cell in cells if "verdict" in cell]
    totals = {
        key: sum(cell["figures"][key] for cell in done)
        for key in ("transactions", "committed", "records", "operations", "unknown")
    }
    rows = [
        ("cells run", f"{len(done)} of {len(cells)}"),
        (
            "struck a second time" + ", see below" * bool(results["again"]),
            f"{len(results['again'])}",
        ),
        ("transactions", f"{totals['transactions']:,} ({totals['committed']:,} committed)"),
        ("records", f"{totals['records']:,}"),
        ("operations", f"{totals['operations']:,}"),
        ("outcome unknown to the client", f"{totals['unknown']} ({_share(totals):.3%})"),
        ("signs that a fault struck", _signs(done)),
        ("violations", f"{sum(cell['violations'] for cell in done)}"),
        (
            f"bars missed, of {sum(cell['cell'] in _BARRED for cell in done)} cells that have one",
            f"{sum(len(cell['missed']) for cell in done)}",
        ),
        (
            "batches compared on the disks of stopped brokers",
            f"{sum(rest['batches'] for rest in results['rests']):,}, "
            f"{sum(len(rest['anomalies']) for rest in results['rests'])} differ",
        ),
        ("longest until all were in sync", f"{max(c['full_after_s'] for c in done):.1f} s"),
        ("time it took", f"{results['seconds'] / 60:.0f} min"),
    ]
    lines = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows), ""]
    lines += [
        "| fault | load | transactions | unknown | gap, s | elsewhere | calm | in sync after, s "
        "| violations |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += map(_row, cells)
    there = {cell["cell"] for cell in cells}
    if newer := [cell.name for cell in CELLS if cell.name not in there]:
        lines += ["", f"Newer than this run, and not in it: {'; '.join(newer)}."]
    if results["again"]:
        lines += [
            "",
            "Struck a second time, and why:",
            "",
            *(f"- {each}" for each in results["again"]),
        ]
    return "\n".join([*lines, ""])


def _signs(done: Sequence[dict[str, Any]]) -> str:
    """Return the number of observations, by unit."""
    counts: Counter[str] = Counter()
    for cell in done:
        kind = cell["cell"].partition(": ")[0]
        counts[_UNITS.get(kind, _OTHERS)] += cell["faults"]
    units = [f"{counts[unit]:,} {unit}" for unit in (*_UNITS.values(), _OTHERS)]
    return f"{counts.total():,}: {', '.join(units)}"


def _row(cell: dict[str, Any]) -> str:
    if "verdict" not in cell:
        return f"| {cell['cell']} | {'skipped' if 'skipped' in cell else '**failed**'} |||||||"
    gaps = [f"{cell[key]:.1f}" for key in ("gap_s", "gap_elsewhere_s", "gap_calm_s")]
    if cell["missed"]:
        gaps[0] = f"**{gaps[0]}**"
    words = [
        *(cell["cell"], cell["workload"], str(cell["figures"]["transactions"])),
        *(f"{_share(cell['figures']):.1%}", *gaps, f"{cell['full_after_s']:.1f}"),
        str(cell["violations"]),
    ]
    return "| " + " | ".join(words) + " |"


def _share(figures: dict[str, int]) -> float:
    return figures["unknown"] / max(figures["operations"], 1)
