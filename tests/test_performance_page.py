"""The page of figures says what the results say."""

import json
import re
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import alone, consumer_groups, measures, report
from benchmarks.beside_kafka import AIMS, HERE, PAGE, RESULTS, TABLES, medians


def test_the_pages_are_made_from_the_results() -> None:
    results = json.loads(RESULTS.read_text())
    assert PAGE.read_text() == report.page(results)
    assert TABLES.read_text() == report.tables(results, HERE / "notes.md")
    assert AIMS.read_text() == report.aims_page(results)


def test_the_page_of_limits_is_made_from_the_kept_runs() -> None:
    kept = json.loads(alone.KEPT.read_text())
    assert alone.PAGE.read_text() == report.limits_page(kept, alone.NOTES)


def test_figures_of_a_run_are_kept_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KEPT", "PAGE"):
        path = tmp_path / name
        path.write_text(getattr(alone, name).read_text())
        monkeypatch.setattr(alone, name, path)
    sizes = {"only": "", "listener": "brokers"}
    alone.keep(Namespace(run="hold", **sizes), {"Heartbeat: ms": 1.234})
    text = alone.PAGE.read_text()
    assert "all of them distinct** (`python -m benchmarks.alone hold --listener brokers`, " in text
    assert "| Heartbeat: ms | 1.23 |" in text
    alone.keep(Namespace(run="recovery", gb=0.5), {"seconds": 1.0})
    assert "alone recovery --gb 0.5`" in alone.PAGE.read_text()
    assert "alone recovery --gb 10`" not in alone.PAGE.read_text()


def test_the_medians_are_those_of_the_runs() -> None:
    for part in json.loads(RESULTS.read_text()).values():
        assert part["medians"] == medians(part["runs"])


def test_tables_and_aims_name_what_is_measured() -> None:
    """A part without results, and processes on four cores, have nothing to compare."""
    results = json.loads(RESULTS.read_text())
    rows = [
        (part, each[at])
        for kind, at in (("each_system", 0), ("two_systems", 1))
        for part, tables in report.TABLES[kind].items()
        for each in tables
    ] + [(part, name) for part, name, *_ in report.TABLES["aims"]["rows"]]
    unknown = {
        pattern
        for part, pattern in rows
        if part in results
        and not any(re.fullmatch(pattern, name) for name in results[part]["medians"])
    }
    assert {each for each in unknown if not re.search("4 (clients|processes)", each)} == set()


def measured(part: str, measurement: str, **figures: dict[str, float]) -> dict[str, Any]:
    """Return results with one measurement; the keys are the systems, `_` for a space."""
    by_system = {name.replace("_", " "): each for name, each in figures.items()}
    runs = {name: [each] for name, each in by_system.items()}
    results: dict[str, Any] = json.loads(RESULTS.read_text())
    results[part] |= {"medians": {measurement: by_system}, "runs": {measurement: runs}}
    return results


def row(results: dict[str, Any], *cells: str) -> str:
    """Return the row of the table of aims that has all these cells."""
    rows = [each for each in report.aims(results) if all(f"| {cell} |" in each for cell in cells)]
    (found,) = rows
    return found


def test_an_aim_that_is_missed_is_said_to_be_missed() -> None:
    name, aim = "Produce of 16 KB", "at most 0.6 of Apache Kafka"
    results = measured("requests", name, Barnabas={"cpu_us": 16.0}, Apache_Kafka={"cpu_us": 20.0})
    assert row(results, name, aim).endswith(f"| 0.80 | {aim} | **no** |")
    results["requests"]["medians"][name]["Barnabas"]["cpu_us"] = 12.0
    assert row(results, name, aim).endswith("| yes |")


def test_records_beside_joins_are_held_against_records_beside_none() -> None:
    results = json.loads(RESULTS.read_text())
    one, *_ = consumer_groups.shapes(members=1_000, groups=10_000)
    p99 = {one.beside: 3.0, consumer_groups.ALONE: 2.0}
    medians = {name: {"Barnabas": {"p99_ms": value}} for name, value in p99.items()}
    results["groups"] = {"medians": medians}
    found = row(results, one.beside, "1.50")
    assert found.endswith(f"at most 1.2 of {consumer_groups.ALONE} | **no** |")


def test_an_aim_of_several_processes_names_them() -> None:
    name, several = "10,000 groups of 2 members", {"Barnabas,_2_processes": {"seconds": 3.0}}
    results = measured("groups", name, Apache_Kafka={"seconds": 4.0}, **several)
    found = row(results, f"{name} (Barnabas, 2 processes)")
    assert found.endswith("| 0.75 | at most 1 of Apache Kafka | yes |")


def test_an_aim_beside_a_system_that_was_not_measured_is_left_out() -> None:
    name = "Produce of 16 KB"
    results = measured("requests", name, Barnabas={"cpu_us": 16.0}, Apache_Kafka={"cpu_us": 20.0})
    assert not any(name in each and "kfake" in each for each in report.aims(results))


def test_throughput_is_held_against_the_faster_peer() -> None:
    rates = {"Barnabas": 90.0, "Apache_Kafka": 80.0, "kfake": 100.0}
    by_system = {name: {"mb_per_s": rate} for name, rate in rates.items()}
    results = measured("throughput", "consume 100 B in 16 KB", **by_system)
    found = row(results, "consume 100 B in 16 KB")
    assert found.endswith("| MB/s | 90 | 100 | 0.90 | at least 1 of kfake | **no** |")


def test_systems_stand_beside_the_floor_and_the_best_peer() -> None:
    name = "Produce of 16 KB"
    figures = {"per_s": 50_000.0, "p50_us": 100.0, "p99_us": 200.0}
    results = measured(
        "requests",
        name,
        Barnabas={"cpu_us": 16.0, **figures},
        Apache_Kafka={"cpu_us": 20.0, **figures},
        kfake={"cpu_us": 32.0, **figures},
        floor_in_C={"cpu_us": 8.0, **figures},
    )
    results["requests"]["runs"][name]["Barnabas"] = [
        {"cpu_us": each} for each in (15.0, 16.0, 17.0)
    ]
    table = report.side_by_side("requests", results["requests"])
    assert "| Barnabas | 16 | 12% | 2.00 | 0.80 | 50,000 | 100 | 200 |" in table


def test_a_system_that_is_left_out_is_named_with_the_reason() -> None:
    results = json.loads(RESULTS.read_text())
    results["requests"]["machine"]["left_out"] = "kfake: `go` is not installed"
    assert "Left out: kfake: `go` is not installed." in report.tables(results, HERE / "notes.md")


def test_cpu_time_of_threads_that_have_ended_counts() -> None:
    work = "import threading as t; x = t.Thread(target=lambda: sum(range(3_000_000)))"
    command = [sys.executable, "-c", f"{work}; x.start(); x.join(); print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seconds = measures.cpu_seconds(process.pid)
        main = Path(f"/proc/{process.pid}/task/{process.pid}/schedstat")
        own = int(main.read_text().split()[0]) / 1e9
        process.communicate(b"\n")
    assert seconds > own + 0.005
    assert measures.cpu_seconds(process.pid) == 0


def test_cost_of_the_pipeline_is_shown_if_it_was_measured() -> None:
    results = json.loads(RESULTS.read_text())
    results["pipeline"]["machine"]["spark"] = "4.2.0"
    name = "trigger of 2,000 rows in 4 tasks"
    both = ((report.OURS, 100.0, 900.0), (report.STOCK, 200.0, 600.0))
    results["pipeline"]["medians"][name] = {
        system: {"cpu_ms": cpu, "peak_mb": peak} for system, cpu, peak in both
    }
    results["pipeline"]["runs"][name] = {
        system: [{"cpu_ms": cpu + each, "peak_mb": peak} for each in (-1.0, 0.0, 1.0)]
        for system, cpu, peak in both
    }
    page = report.tables(results, HERE / "notes.md")
    assert "PySpark and stock connector 4.2.0, on" in page
    assert f"| {name}, CPU ms | 100 | 2% | 200 | 1% | 0.50 |" in page
    assert f"| {name}, peak memory, MB | 900 | 0% | 600 | 0% | 1.50 |" in page


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
            measures.reset_peaks(process.pid)
            process.stdin.write("\n")
            process.stdin.flush()
            process.stdout.readline()
            peaks.append(measures.peak_bytes(process.pid))
        measures.reset_peaks(process.pid)
        peaks.append(measures.peak_bytes(process.pid))
    assert min(peaks[:2]) > 50_000_000 > peaks[2]
    assert measures.peak_bytes(process.pid) == 0
