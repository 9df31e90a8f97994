"""The views of a job's progress: terminal, lines, web page and metrics."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from barnabas.pipeline.monitor.progress import (
    BadExample,
    BadRecords,
    BatchEvent,
    BatchFigures,
    DecisionCounts,
    LastDecision,
    Monitor,
    Progress,
    SinkState,
    SinkTransaction,
    SourceLag,
    StateOperator,
    TopicLag,
)
from barnabas.pipeline.monitor.view import line, render
from barnabas.pipeline.monitor.web import HttpResponse, WebPage, metrics_text, routes

NOON = 1767268800.0
BATCH = BatchFigures(5, NOON, 3000, 2900, 7, 12, 900, 10, 700, 100, 50, 3, 42, "then", 65_000)
EVENT = BatchEvent(
    BATCH,
    (SourceLag("orders", (TopicLag("in", 8), TopicLag("more", 4))),),
    (StateOperator(0, "dedupe", 42, 5000, 3, 9),),
    (
        BadRecords("orders", "key", "misfit", 0, None),
        BadRecords("orders", "value", "not_json", 5, BadExample("in", 0, 17, None)),
        BadRecords(
            "orders",
            "key",
            "unknown_schema_id",
            2,
            BadExample("in", 1, 3, "subject in-key, schema id 9"),
        ),
    ),
)


def running(**state: object) -> Progress:
    monitor = Monitor("job", "sink", NOON - 10)
    monitor.state = "running"
    monitor.add(EVENT)
    kept = tuple(SinkTransaction(f"sink.a.{n}", n, 3, 12.0, True) for n in range(10))
    sink = SinkState(LastDecision(4, "q", 2, 2900, 40), DecisionCounts(4, 8, 1), kept, None)
    monitor.cluster = replace(sink, **state)
    return monitor.progress(NOON)


def shown(progress: Progress, width: int = 120) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(progress))
    return console.export_text()


def test_the_terminal_shows_flow_times_decision_and_kept_transactions():
    text = shown(running())
    for part in (
        "job  running  sink sink",
        "300 in, 290 out",
        "3,000 in, 2,900 out, 7 bad, 3 late",
        "12 offsets",
        "source 10 ms, tasks 700 ms, commit 100 ms, checkpoint 50 ms",
        "lag of orders, in: 8 offsets",
        "then, 65 s behind",
        "dedupe: 42 rows, 5.0 kB, 3 late",
        "5 of orders: value not_json, such as in/0@17",
        "2 of orders: key unknown_schema_id, such as in/1@3, subject in-key, schema id 9",
        "batch 4: 2,900 rows in 2 transactions",
        "4 committed with 8 transactions, 1 dropped",
        "10 transactions, 10 kept",
        "sink.a.7 7:3, 12 s",
        "and 2 more",
    ):
        assert part in text
    assert "sink.a.8" not in text
    assert "misfit" not in text


def test_the_terminal_cuts_no_transactional_id():
    name = "sink." + "a" * 200
    kept = (SinkTransaction(name, 7, 3, 12.0, True),)
    text = shown(running(open=kept), width=80)
    assert name in "".join(text.split())


def test_the_terminal_shows_why_the_cluster_could_not_be_asked():
    assert "no answer" in shown(running(problem="no answer"))


def test_a_failure_is_shown_with_its_reason():
    monitor = Monitor("job", "sink", NOON)
    monitor.state, monitor.error = "failed", "because"
    assert "because" in shown(monitor.progress(NOON))
    assert line(monitor.progress(NOON)).endswith("job failed: because")


def test_a_line_has_the_figures_of_the_batch():
    assert line(running()).endswith(
        "job running: batch 5, 3000 rows in, 2900 out, 7 bad, lag 12, source 10 ms, tasks 700 ms,"
        " commit 100 ms"
    )


@pytest.mark.parametrize("progress", [running(), Monitor("job", "s", NOON).progress(NOON)])
def test_metrics_are_read_by_prometheus(progress):
    families = {
        each.name: each for each in text_string_to_metric_families(metrics_text(progress).decode())
    }
    [rows] = families["barnabas_pipeline_rows_in"].samples
    assert (rows.labels, rows.value) == ({"pipeline": "job"}, progress.rows_in)
    states = {
        each.labels["state"]: each.value for each in families["barnabas_pipeline_state"].samples
    }
    assert [state for state, value in states.items() if value] == [progress.state]
    assert ("barnabas_pipeline_lag" in families) == (progress.last is not None)


def test_metrics_have_lag_state_bad_records_and_decisions():
    found = {}
    for family in text_string_to_metric_families(metrics_text(running()).decode()):
        for each in family.samples:
            values = frozenset(each.labels.values()) - {"job"}
            found[each.name, values] = each.value
    expected = {
        ("lag", "orders", "in"): 8,
        ("lag", "orders", "more"): 4,
        ("state_rows", "0", "dedupe"): 42,
        ("state_bytes", "0", "dedupe"): 5000,
        ("late_rows_total", "0", "dedupe"): 3,
        ("state_removed_rows_total", "0", "dedupe"): 9,
        ("watermark_delay_seconds",): 65,
        ("bad_records_total", "orders", "key", "misfit"): 0,
        ("bad_records_total", "orders", "key", "unknown_schema_id"): 2,
        ("decisions_total", "committed"): 4,
        ("decisions_total", "dropped"): 1,
        ("transactions_committed_total",): 8,
        ("open_transactions",): 10,
        ("last_progress_seconds",): NOON,
    }
    for (name, *labels), value in expected.items():
        assert found[f"barnabas_pipeline_{name}", frozenset(labels)] == value


@pytest.fixture
def page() -> Iterator[WebPage]:
    progress = running()
    pressed = {"/stop": lambda: HttpResponse(HTTPStatus.OK, "text/plain", b"stopped\n")}
    page = WebPage("127.0.0.1", 0, routes(lambda: progress), pressed)
    page.start()
    yield page
    page.stop()


def request(page: WebPage, method: str, path: str, **headers: str) -> tuple[int, bytes]:
    address = urlsplit(page.address)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_the_page_serves_html_progress_and_metrics(page):
    status, html = request(page, "GET", "/")
    assert (status, html[:15]) == (200, b"<!doctype html>")
    status, text = request(page, "GET", "/progress?x=1")
    assert status == 200
    assert json.loads(text)["last"]["number"] == 5
    assert b"barnabas_pipeline_batches_total" in request(page, "GET", "/metrics")[1]
    assert request(page, "HEAD", "/metrics") == (200, b"")


def test_connections_that_got_no_thread_take_no_place_for_ever(
    page: WebPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        for _ in range(40):
            with pytest.raises(ConnectionError):
                request(page, "GET", "/")
    assert request(page, "GET", "/")[0] == 200


def test_other_paths_and_methods_are_refused(page):
    assert request(page, "GET", "/x") == (404, b"/ /progress /metrics\n")
    assert request(page, "DELETE", "/")[0] == 501


def test_a_button_needs_a_header_that_other_sites_cannot_set(page):
    assert request(page, "POST", "/stop")[0] == 403
    assert request(page, "POST", "/stop", **{"X-Barnabas": "1"}) == (200, b"stopped\n")
    assert request(page, "GET", "/stop")[0] == 404


def test_a_client_that_hangs_up_is_no_error(page, capfd):
    address = urlsplit(page.address)
    for data in (b"", b"GET", b"nonsense\r\n\r\n"):
        with socket.create_connection((address.hostname, address.port), timeout=10) as client:
            client.sendall(data)
    assert request(page, "GET", "/progress")[0] == 200
    assert capfd.readouterr() == ("", "")
