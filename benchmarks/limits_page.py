"""The page docs/LIMITS.md, from the figures of `benchmarks.limits`."""

import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.limits_measures import Felt

PAGE = Path(__file__).parents[1] / "docs" / "LIMITS.md"
NOTES = Path(__file__).with_name("limits_notes.md")
MAX_RATIO = 1.2


def page(found: Mapping[str, Felt | float], rounds: int, window_s: float) -> str:
    """Return the tables of the page."""
    lines = [
        "# Limits",
        "",
        "The load that one broker carries, and its effect on other clients. One client sends one",
        f"record at a time, 500 a second, in {rounds} rounds of three windows of {window_s} s:",
        "calm, disturbed, calm. The ratio is the disturbed p99 over the mean of the two calm p99s",
        "of its round; the noise is the larger calm p99 over the smaller. The table has medians",
        f"of the rounds. A ratio above {MAX_RATIO} that is not above the noise shows nothing.",
        "",
        f"- machine: {os.cpu_count()} cores shared with the load, {platform.platform()}, "
        f"Python {platform.python_version()}",
        f"- date: {time.strftime('%Y-%m-%d', time.gmtime())}",
        "- command: `python -m benchmarks.limits` (writes this page)",
        "",
        f"| disturbance | p99 calm, ms | p99 disturbed, ms | ratio | noise | at most {MAX_RATIO} |",
        "|---|--:|--:|--:|--:|---|",
    ]
    measured = {title: each for title, each in found.items() if isinstance(each, Felt)}
    for title, each in measured.items():
        p99s = f"{each.calm_p99:.2f} | {each.disturbed_p99:.2f}"
        ratios = f"{each.ratio:.2f} | {each.noise:.2f}"
        lines.append(f"| {title} | {p99s} | {ratios} | {verdict(each)} |")
    lines += [
        "",
        "The time for which the broker's event loop was blocked, in ms, calm / disturbed: the time",
        "between two iterations at p99 and at most, and the longest CPU time of the loop's thread",
        "between two iterations, which other processes do not change.",
        "",
        "| disturbance | p99 | at most | its own CPU time, at most |",
        "|---|--:|--:|--:|",
    ]
    for title, each in measured.items():
        pairs = [f"{c:.1f} / {d:.1f}" for c, d in zip(each.calm, each.disturbed, strict=True)]
        lines.append(f"| {title} | {' | '.join(pairs)} |")
    lines += ["", "| figure | |", "|---|--:|"]
    lines += [
        f"| {title} | {figure:.3g} |"
        for title, figure in found.items()
        if not isinstance(figure, Felt)
    ]
    return "\n".join(lines) + "\n"


def verdict(each: Felt) -> str:
    """Say whether other clients were disturbed, as far as the noise allows."""
    if each.ratio <= MAX_RATIO:
        return "yes"
    return "**no**" if each.ratio > each.noise else "within the noise"
