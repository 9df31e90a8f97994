"""docs/LIMITS.md from what `benchmarks.limits` has found."""

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
    """The tables."""
    lines = [
        "# Limits",
        "",
        "What a broker holds, and what others feel of it. One client sends a record at a time, 500",
        f"a second, in {rounds} rounds of three windows of {window_s} s: calm, disturbed, calm.",
        "The ratio is the disturbed p99 over the mean of the calm ones beside it, the noise is the",
        "greater calm p99 over the smaller; medians over the rounds. A ratio above "
        f"{MAX_RATIO} that is",
        "not above the noise says nothing.",
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
        "How long the broker's event loop was held, in ms, calm / disturbed: the time between two",
        "turns at p99 and at most, and the most processor time of the loop's thread between them,",
        "which a busy machine does not change.",
        "",
        "| disturbance | p99 | at most | its own work, at most |",
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
    """Whether the others were left undisturbed, as far as the noise lets it be seen."""
    if each.ratio <= MAX_RATIO:
        return "yes"
    return "**no**" if each.ratio > each.noise else "lost in the noise"
