"""The page of the example: the flow from orders to sums, with buttons that kill its processes."""

import json
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

from barnabas.pipeline.monitor.progress import Progress
from barnabas.pipeline.monitor.web import HttpResponse, Route, routes

_JSON: Final = "application/json"


class Process(NamedTuple):
    """A process of the example; `pid` is None while it does not run."""

    name: str
    pid: int | None
    ready: bool
    """Whether it may be killed: it has started, and the processes that replace it have too."""
    kills: int
    """The number of times that the page has killed it."""


class State(NamedTuple):
    """The state of the example; times in seconds since its start."""

    phase: str
    seconds: float
    sent: Mapping[str, int]
    """The records sent by kind."""
    brokers: Sequence[Process]
    driver: Process
    sums: int
    """Committed rows in the topic of the sums."""
    broken: int
    """Committed records in the topic of those that cannot be parsed."""
    first_row: float | None
    last_sums: Sequence[Mapping[str, object]]
    events: Sequence[tuple[float, str]]
    verdict: Sequence[str]

    def as_json(self, progress: Progress) -> bytes:
        """Return the state with the progress of the job, for the page."""
        data = {
            **self._asdict(),
            "brokers": [each._asdict() for each in self.brokers],
            "driver": self.driver._asdict(),
            "progress": json.loads(progress.to_json()),
        }
        return json.dumps(data).encode() + b"\n"


class Refused(Exception):
    """A kill that is refused; the text says why."""


def gets(state: Callable[[], State], progress: Callable[[], Progress]) -> dict[str, Route]:
    """Return what the page answers to GET: the page of a job, and `/state`."""
    return {
        **routes(progress),
        "/": lambda: HttpResponse(HTTPStatus.OK, "text/html; charset=utf-8", PAGE.encode()),
        "/state": lambda: HttpResponse(HTTPStatus.OK, _JSON, state().as_json(progress())),
    }


def posts(kill: Callable[[str], int], names: Sequence[str]) -> dict[str, Route]:
    """Return what the page answers to POST: `/kill/NAME` kills a process.

    `kill` returns the process id, or raises Refused.
    """

    def route(name: str) -> Route:
        def answer() -> HttpResponse:
            try:
                pid = kill(name)
            except Refused as error:
                return _answer(HTTPStatus.CONFLICT, {"error": str(error)})
            return _answer(HTTPStatus.OK, {"killed": name, "pid": pid})

        return answer

    return {f"/kill/{name}": route(name) for name in names}


def _answer(status: HTTPStatus, data: Mapping[str, object]) -> HttpResponse:
    return HttpResponse(status, _JSON, json.dumps(data).encode() + b"\n")


PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Barnabas: orders</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:64rem;padding:0 1rem;color:#222}
h1{font-size:1.3rem;margin:0 0 1rem} h2{font-size:1rem;margin:1.5rem 0 .3rem}
#phase{padding:.1rem .5rem;border-radius:.3rem;background:#bfe8c5;font-weight:normal}
.flow{display:flex;flex-wrap:wrap;gap:.5rem;align-items:stretch}
.box{border:1px solid #bbb;border-radius:.5rem;padding:.6rem .8rem;flex:1 1 9rem}
.box b{display:block;font-size:1.4rem;font-variant-numeric:tabular-nums}
.box small{display:block;color:#777} .arrow{align-self:center;font-size:1.4rem;color:#999}
.down{border-color:#c33;background:#fdeaea}
button{font:inherit;border:1px solid #c33;color:#c33;background:none;border-radius:.3rem;
cursor:pointer;padding:.1rem .6rem;margin-top:.3rem} button:disabled{opacity:.3;cursor:default}
table{border-collapse:collapse} td,th{padding:.1rem 1.2rem .1rem 0;text-align:left}
td.n{text-align:right;font-variant-numeric:tabular-nums}
#events{font:13px/1.5 ui-monospace,monospace;white-space:pre-wrap} #verdict{white-space:pre-wrap}
.columns{display:flex;flex-wrap:wrap;gap:3rem}
@media(prefers-color-scheme:dark){body{background:#181a1b;color:#ddd}#phase{color:#222}
.box{border-color:#444}.down{background:#3a1c1c}}
</style></head><body>
<h1>Orders become sums, exactly once <span id="phase"></span></h1>
<div class="flow" id="flow"></div>
<h2>Processes</h2><div class="flow" id="processes"></div>
<div id="verdict"></div>
<div class="columns"><div><h2>Last sums</h2><table id="sums"></table></div>
<div><h2>Events</h2><div id="events"></div></div></div>
<script>
const $=id=>document.getElementById(id),n=x=>x==null?"?":Math.round(x).toLocaleString("en");
function add(parent,tag,text,kind){const e=document.createElement(tag);
  if(text!=null)e.textContent=text;if(kind)e.className=kind;parent.append(e);return e}
function box(parent,title,value,lines){const d=add(parent,"div",null,"box");add(d,"span",title);
  add(d,"b",value);lines.forEach(l=>add(d,"small",l));return d}
function arrow(){add($("flow"),"div","\\u2192","arrow")}
async function kill(name){await fetch("kill/"+name,{method:"POST",headers:{"X-Barnabas":"1"}})}
function keyed(list,name){return list.querySelector('[data-name="'+name+'"]')}
function process(p){let d=keyed($("processes"),p.name);
  if(!d){d=box($("processes"),p.name,"",["",""]);d.dataset.name=p.name;
  add(d,"button","kill -9").onclick=()=>kill(p.name)}
  d.className="box"+(p.pid==null?" down":"");
  d.children[1].textContent=p.pid==null?"down":p.ready?"runs":"starts";
  d.children[2].textContent=p.pid==null?"":"process "+p.pid;
  d.children[3].textContent=p.kills?"killed "+p.kills+" times":"";
  d.children[4].disabled=!p.ready}
function show(s){const p=s.progress,last=p.last||{},d=p.cluster.decision;
  $("phase").textContent=s.phase;$("flow").replaceChildren();
  const sent=Object.values(s.sent).reduce((a,b)=>a+b,0);
  box($("flow"),"orders sent",n(sent),[n(s.sent.repeated)+" repeated",n(s.sent.late)+" late",
  n(s.sent.broken)+" broken"]);arrow();
  box($("flow"),"Spark, rows/s",n(p.rows_in_per_s),["batch "+n(last.number)+", "+p.state,
  "lag "+n(last.lag),n(last.state_rows)+" rows of state",d?"decided: batch "+d.batch:""]);arrow();
  box($("flow"),"sums committed",n(s.sums),[
  s.first_row==null?"":"first row after "+s.first_row.toFixed(1)+" s"]);
  box($("flow"),"broken ones apart",n(s.broken),[]);
  s.brokers.forEach(process);process(s.driver);
  $("verdict").textContent=s.verdict.join("\\n");
  $("events").textContent=s.events.slice(-12).reverse()
  .map(([t,e])=>t.toFixed(1).padStart(6)+" s  "+e).join("\\n");
  $("sums").replaceChildren();const h=$("sums").insertRow();
  ["minute","category","orders","sum"].forEach(t=>add(h,"th",t));
  s.last_sums.slice(-12).reverse().forEach(r=>{const row=$("sums").insertRow();
  add(row,"td",String(r.minute).slice(11,16));add(row,"td",r.category);
  add(row,"td",n(r.orders),"n");add(row,"td",(r.cents/100).toFixed(2),"n")})}
async function tick(){try{show(await(await fetch("state")).json())}
  catch(e){$("phase").textContent="ended"}setTimeout(tick,500)}
tick()
</script></body></html>
"""
"""The page; it loads nothing from elsewhere, and inserts values as text only."""
