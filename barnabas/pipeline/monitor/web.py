"""The web page of a job: `/` for people, `/progress` as JSON, `/metrics` for Prometheus.

A job runs in threads, not on an event loop, so the page is served from a thread as well.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from typing import Final, NamedTuple

from barnabas.metrics.exposition import CONTENT_TYPE
from barnabas.metrics.exposition import render as render_family
from barnabas.metrics.registry import FamilySnapshot
from barnabas.pipeline.monitor.progress import (
    STATES,
    BatchFigures,
    Progress,
    SinkState,
    StateOperator,
)

_TIMEOUT: Final = 10.0
_MOST_CONNECTIONS: Final = 32
"""Limit of simultaneous connections, each of which has a thread."""
_TEXT: Final = "text/plain; charset=utf-8"


class HttpResponse(NamedTuple):
    """Status, type and body of a response."""

    status: HTTPStatus
    content_type: str
    body: bytes


Route = Callable[[], HttpResponse]


def routes(read: Callable[[], Progress]) -> dict[str, Route]:
    """Return what a page of `read`'s progress answers, by path."""
    return {
        "/": lambda: HttpResponse(HTTPStatus.OK, "text/html; charset=utf-8", PAGE.encode()),
        "/progress": lambda: HttpResponse(
            HTTPStatus.OK, "application/json", read().to_json() + b"\n"
        ),
        "/metrics": lambda: HttpResponse(HTTPStatus.OK, CONTENT_TYPE, metrics_text(read())),
    }


class WebPage:
    """An HTTP server in threads: GET for `gets`, POST for `posts`, by path."""

    def __init__(
        self, host: str, port: int, gets: Mapping[str, Route], posts: Mapping[str, Route] = {}
    ) -> None:
        """Listen; OSError if the address is unavailable. Port 0 takes a free one."""
        self._server = _Server((host, port), gets, posts)
        self._thread = threading.Thread(target=self._server.serve_forever, name="web", daemon=True)

    @property
    def address(self) -> str:
        """The URL of the page."""
        host, port = self._server.server_address[:2]
        return f"http://{str(host) if host != '0.0.0.0' else 'localhost'}:{port}"

    def start(self) -> None:
        """Serve in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving and close the socket."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(
        self, address: tuple[str, int], gets: Mapping[str, Route], posts: Mapping[str, Route]
    ) -> None:
        self.by_method = {"GET": gets, "HEAD": gets, "POST": posts}
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__(address, _Handler)

    def process_request(
        self, request: socket | tuple[bytes, socket], client_address: object
    ) -> None:
        """Start a thread for a connection, or close it if there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            # The machine starts no more threads now.
            self._free.release()
            raise

    def process_request_thread(
        self, request: socket | tuple[bytes, socket], client_address: object
    ) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
        """Log nothing: a client that closes its connection is not an error of the job."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _TIMEOUT
    server_version = "barnabas"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        if self.headers.get("X-Barnabas") is None:
            # Pages of other sites cannot set additional headers.
            text = b"POST needs the header X-Barnabas\n"
            self._send(HttpResponse(HTTPStatus.FORBIDDEN, _TEXT, text))
            return
        self._answer()

    def _answer(self) -> None:
        known = self.server.by_method[self.command]
        route = known.get(self.path.partition("?")[0])
        if route is None:
            text = " ".join(known).encode() + b"\n"
            self._send(HttpResponse(HTTPStatus.NOT_FOUND, _TEXT, text))
            return
        self._send(route())

    def _send(self, answer: HttpResponse) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the terminal for the view of the job."""


# -- metrics ---------------------------------------------------------------------------------------


def metrics_text(progress: Progress) -> bytes:
    """Return the metrics of a job in the text format of Prometheus."""
    return b"".join(block for family in families(progress) for block in render_family(family))


def families(progress: Progress) -> Iterator[FamilySnapshot]:
    """Yield the metrics of a job. Its label is `pipeline`: Prometheus has its own label `job`."""
    yield _family(
        progress,
        "state",
        "1 for the state of the job, 0 for the others",
        [((state,), float(progress.state == state)) for state in STATES],
        "state",
    )
    for name, help, value in (
        ("rows_in_total", "Records read since the start", progress.rows_in),
        ("rows_out_total", "Records written since the start", progress.rows_out),
        ("batches_total", "Batches since the start", progress.batches),
        (
            "last_progress_seconds",
            "When a batch ended or the query waited for data, since the epoch",
            progress.progressed_at_seconds,
        ),
    ):
        yield _family(progress, name, help, [((), value)])
    yield from _of_parts(progress)
    if progress.last is not None:
        yield from _of_batch(progress, progress.last)
    yield from _of_sink(progress, progress.cluster)


def _family(
    progress: Progress,
    name: str,
    help: str,
    samples: Iterable[tuple[tuple[str, ...], float]],
    *labels: str,
) -> FamilySnapshot:
    """Return a metric of a job; it is a counter if its name says so."""
    return FamilySnapshot(
        f"barnabas_pipeline_{name}",
        help,
        "counter" if name.endswith("_total") else "gauge",
        ("pipeline", *labels),
        [((progress.job, *values), value) for values, value in samples],
    )


def _of_parts(progress: Progress) -> Iterator[FamilySnapshot]:
    """Yield the metrics of the sources, of the operators with state, and of bad records."""
    bad = [((each.view, each.part, each.reason), each.records) for each in progress.bad]
    help = "Records that could not be parsed, since the start"
    yield _family(progress, "bad_records_total", help, bad, "view", "part", "reason")
    if progress.sources is not None:
        lags = [
            ((source.view, each.topic), each.lag)
            for source in progress.sources
            for each in source.topics
        ]
        yield _family(progress, "lag", "Offsets that are not read yet", lags, "view", "topic")
    of_operators: dict[str, tuple[str, Callable[[StateOperator], int]]] = {
        "state_rows": ("Rows in the state of an operator", lambda each: each.rows),
        "state_bytes": ("Memory of the state of an operator", lambda each: each.bytes),
        "state_removed_rows_total": (
            "Rows that have left the state, since the start",
            lambda each: each.removed_rows,
        ),
        "late_rows_total": (
            "Rows that the watermark has dropped, since the start",
            lambda each: each.late_rows,
        ),
    }
    for name, (help, read) in of_operators.items():
        rows = [((str(each.number), each.name), read(each)) for each in progress.operators]
        yield _family(progress, name, help, rows, "operator", "name")


def _of_batch(progress: Progress, last: BatchFigures) -> Iterator[FamilySnapshot]:
    """Yield the metrics of the last batch."""
    yield _family(progress, "batch", "Number of the last batch", [((), last.number)])
    help = "End of the last batch, since the epoch"
    yield _family(progress, "batch_end_seconds", help, [((), last.ended_at_seconds)])
    steps = {
        "source": last.source_ms,
        "tasks": last.tasks_ms,
        "commit": last.commit_ms,
        "checkpoint": last.checkpoint_ms,
        "total": last.total_ms,
    }
    times = [((step,), ms / 1000) for step, ms in steps.items()]
    help = "Time of the last batch by its steps"
    yield _family(progress, "batch_seconds", help, times, "step")
    if last.watermark_delay_ms is not None:
        help = "Time from the watermark to the begin of the last batch"
        delay = [((), last.watermark_delay_ms / 1000)]
        yield _family(progress, "watermark_delay_seconds", help, delay)


def _of_sink(progress: Progress, sink: SinkState) -> Iterator[FamilySnapshot]:
    """Yield the metrics of the sink in the cluster."""
    if sink.decision is not None:
        help = "Batch of the sink's last decision"
        yield _family(progress, "decided_batch", help, [((), sink.decision.batch)])
    if (counts := sink.counts) is not None:
        results = [(("committed",), counts.committed), (("dropped",), counts.dropped)]
        help = "Decisions of the sink since the start, by what became of them"
        yield _family(progress, "decisions_total", help, results, "result")
        help = "Transactions that the sink's decisions have committed, since the start"
        yield _family(progress, "transactions_committed_total", help, [((), counts.transactions)])
    if sink.open is not None:
        kept = [each.age_seconds for each in sink.open if each.is_kept]
        for name, help, value in (
            ("open_transactions", "Open transactions under the sink's id", len(sink.open)),
            ("kept_transactions", "Those that are kept (KIP-939)", len(kept)),
            ("kept_seconds", "Age of the oldest of these", max(kept, default=0.0)),
        ):
            yield _family(progress, name, help, [((), value)])


PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Barnabas pipeline</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:56rem;padding:0 1rem;color:#222}
h1{font-size:1.3rem;margin:0} #state{padding:.1rem .5rem;border-radius:.3rem;background:#ddd}
#state.running{background:#bfe8c5} #state.failed{background:#f3b5b0}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.8rem;
margin:1rem 0}
.figures div{border:1px solid #ddd;border-radius:.4rem;padding:.5rem .8rem}
.figures b{display:block;font-size:1.3rem;font-variant-numeric:tabular-nums}
canvas{width:100%;height:8rem;border:1px solid #ddd;border-radius:.4rem}
table{border-collapse:collapse;margin-top:1rem} td,th{padding:.1rem 1rem .1rem 0;text-align:left}
.bar{display:flex;height:1.2rem;border-radius:.3rem;overflow:hidden;background:#eee}
.bar span{overflow:hidden;white-space:nowrap;font-size:.75rem;padding-left:.3rem}
#error{color:#a00}
@media(prefers-color-scheme:dark){body{background:#181a1b;color:#ddd}#state{color:#222}
.figures div,canvas{border-color:#444}.bar span{color:#222}}
</style></head><body>
<h1><span id="job"></span> <span id="state"></span></h1><p id="error"></p>
<div class="figures" id="figures"></div>
<canvas id="chart" width="900" height="130"></canvas>
<p>Rows/s <span style="color:#2a7">in</span>, <span style="color:#27c">out</span>.
Time of the last batch:</p><div class="bar" id="bar"></div>
<table id="sources"></table><table id="operators"></table><table id="bad"></table>
<table id="open"></table>
<script>
const $=id=>document.getElementById(id),n=x=>x==null?"?":Math.round(x).toLocaleString("en"),past=[];
function cell(parent,tag,text){const e=document.createElement(tag);e.textContent=text;
  parent.append(e);return e}
function figure(name,value){const d=document.createElement("div");cell(d,"b",value);
  cell(d,"span",name);$("figures").append(d)}
function table(id,heads,rows){$(id).replaceChildren();if(!rows.length)return;
  const h=$(id).insertRow();heads.forEach(t=>cell(h,"th",t));
  rows.forEach(r=>{const row=$(id).insertRow();r.forEach(x=>cell(row,"td",x))})}
function chart(){const c=$("chart"),g=c.getContext("2d"),w=c.width,h=c.height;
  g.clearRect(0,0,w,h);const top=Math.max(1,...past.flat());
  [["#2a7",0],["#27c",1]].forEach(([colour,i])=>{g.strokeStyle=colour;g.lineWidth=2;g.beginPath();
  past.forEach((p,x)=>g.lineTo(w-(past.length-x)*3,h-4-p[i]/top*(h-12)));g.stroke()})}
function show(p){const last=p.last||{},d=p.cluster.decision,open=p.cluster.open||[];
  $("job").textContent=p.job;$("state").textContent=$("state").className=p.state;
  $("error").textContent=p.error||p.cluster.problem||"";$("figures").replaceChildren();
  figure("rows/s in",n(p.rows_in_per_s));figure("rows/s out",n(p.rows_out_per_s));
  figure("rows in",n(p.rows_in));figure("rows out",n(p.rows_out));
  figure("bad records",n(p.bad_rows));
  figure("late rows",n(p.late_rows));figure("lag, offsets",n(last.lag));
  figure("batch",n(last.number));
  figure("last decision",d?"batch "+d.batch:"none");
  const k=p.cluster.counts;if(k){figure("decisions",n(k.committed)+", "+n(k.dropped)+" dropped");
  figure("transactions committed",n(k.transactions))}
  figure("open transactions",open.length);
  figure("kept transactions",open.filter(t=>t.is_kept).length);
  past.push([p.rows_in_per_s,p.rows_out_per_s]);if(past.length>300)past.shift();chart();
  $("bar").replaceChildren();
  [["source","#f2c879"],["tasks","#9fd3a5"],["commit","#9fc1ee"],["checkpoint","#d6b8e8"]]
  .forEach(([s,c])=>{const e=cell($("bar"),"span",s+" "+n(last[s+"_ms"])+" ms");
  e.style.background=c;e.style.flex=Math.max(1,last[s+"_ms"]||0)+" 1 4rem"});
  table("sources",["source","topic","lag, offsets"],(p.sources||[]).flatMap(s=>
  s.topics.map(t=>[s.view,t.topic,n(t.lag)])));
  const delay=last.watermark_delay_ms;
  table("operators",["state","rows","bytes","late rows","watermark","delay"],p.operators.map(o=>
  [o.number+" "+o.name,n(o.rows),n(o.bytes),n(o.late_rows),
  delay==null?"none yet":last.watermark,delay==null?"":n(delay/1000)+" s"]));
  table("bad",["bad records of","part","reason","records","example","schema"],
  p.bad.filter(b=>b.records).map(b=>[b.view,b.part,b.reason,n(b.records),
  b.example?b.example.topic+"/"+b.example.partition+"@"+b.example.offset:"",
  b.example&&b.example.schema||""]));
  $("open").replaceChildren();open.filter(t=>t.is_kept).slice(0,20).forEach(t=>{
  const r=$("open").insertRow();[t.transactional_id,t.producer_id+":"+t.epoch,n(t.age_seconds)+" s"]
  .forEach(x=>cell(r,"td",x))})}
async function tick(){try{show(await(await fetch("progress")).json())}
  catch(e){$("state").textContent=$("state").className="gone"}setTimeout(tick,1000)}
tick()
</script></body></html>
"""
"""The page; it loads nothing from elsewhere, and inserts values as text only."""
