"""The page of figures says what the results say."""

import json
import subprocess
import sys

from benchmarks import report, systems
from benchmarks.beside_kafka import HERE, PAGE, RESULTS, medians


def test_the_page_is_made_from_the_results() -> None:
    assert PAGE.read_text() == report.page(json.loads(RESULTS.read_text()), HERE / "notes.md")


def test_the_medians_are_those_of_the_runs() -> None:
    for part in json.loads(RESULTS.read_text()).values():
        assert part["medians"] == medians(part["runs"])


def test_an_aim_that_is_missed_is_said_to_be_missed() -> None:
    results = json.loads(RESULTS.read_text())
    produced = results["log"]["medians"]["produce 1024 B in 1024 KB"]
    produced[report.OURS]["mb_per_s"] = produced[report.THEIRS]["mb_per_s"] / 2
    page = report.page(results, HERE / "notes.md")
    start = page.rindex("| 1024 B in 1024 KB, MB/s", 0, page.index("### Consume"))
    row = page[start:].splitlines()[0]
    assert "0.50" in row
    assert "**no**" in row


def test_cost_of_the_pipeline_is_shown_if_it_was_measured() -> None:
    results = json.loads(RESULTS.read_text())
    results["pipeline"]["machine"]["spark"] = "4.2.0"
    trigger = results["pipeline"]["medians"]["trigger of 2,000 rows in 4 tasks"]
    for name, cpu, peak in ((report.OURS, 100.0, 900.0), (report.STOCK, 200.0, 600.0)):
        trigger[name] |= {"cpu_ms": cpu, "peak_mb": peak}
    page = report.page(results, HERE / "notes.md")
    assert "PySpark and stock connector 4.2.0, on" in page
    assert "| trigger of 2,000 rows in 4 tasks, CPU ms | 100 | 200 | 0.50 |" in page
    assert "| trigger of 2,000 rows in 4 tasks, peak memory, MB | 900 | 600 | 1.50 |" in page


def test_peak_of_a_load_is_not_that_of_an_earlier_one() -> None:
    """Processes that have ended count nothing: Spark ends its workers when it likes."""
    load = "input(); x = bytearray(50_000_000); print(len(x)); input(); del x; print(); input()"
    command = [sys.executable, "-u", "-c", load]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        peaks = []
        for _ in range(2):
            systems.reset_peaks(process.pid)
            process.stdin.write("\n")
            process.stdin.flush()
            process.stdout.readline()
            peaks.append(systems.peak_bytes(process.pid))
        systems.reset_peaks(process.pid)
        peaks.append(systems.peak_bytes(process.pid))
    assert min(peaks[:2]) > 50_000_000 > peaks[2]
    assert systems.peak_bytes(process.pid) == 0
