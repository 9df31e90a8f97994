"""The Grafana dashboard, deploy/monitoring/dashboard.json: its rows and panels."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

DASHBOARD = Path(__file__).parents[2] / "deploy" / "monitoring" / "dashboard.json"
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _IN_A_ROW = 8, 7, 3
_SERIES: Final = re.compile(r"\b(?:kafka|barnabas|process)_\w+")


class Panel(NamedTuple):
    """A graph: its title, Grafana's unit, its queries by legend, and its text.

    A query says neither brokers nor topics nor the length of time: `[]` is the time of a rate.
    """

    title: str
    unit: str
    queries: Mapping[str, str]
    text: str = ""


def _quantile(q: float, metric: str, *by: str) -> str:
    return f"histogram_quantile({q}, sum by ({', '.join(('le', *by))}) (rate({metric}_bucket[])))"


def _quantiles(metric: str) -> dict[str, str]:
    return {"p50": _quantile(0.5, metric), "p99": _quantile(0.99, metric)}


_REPLICAS, _CONTROLLER = "kafka_server_replicamanager_", "kafka_controller_kafkacontroller_"
_ELECTIONS, _SOCKETS = "kafka_controller_controllerstats_", "kafka_server_socketservermetrics_"
_TOPICS, _REQUESTS = "kafka_server_brokertopicmetrics_", "kafka_network_requestmetrics_"
_GROUPS, _TRANSACTIONS = "kafka_coordinator_group_", "kafka_coordinator_transaction_"
_MARKERS = _TRANSACTIONS + "transactionmarkerchannelmanager_"
_LAG = (
    "A group's coordinator reports it for partitions that have an in-sync replica on its broker: "
    "the sum is complete if every broker has a replica of every partition."
)

ROWS: Final[Mapping[str, Sequence[Panel]]] = {
    "Health": (
        Panel(
            "Under-replicated partitions",
            "short",
            {
                "under-replicated": f"sum({_REPLICAS}underreplicatedpartitions)",
                "under min.insync.replicas": f"sum({_REPLICAS}underminisrpartitioncount)",
                "offline replicas": f"sum({_REPLICAS}offlinereplicacount)",
            },
            "Any value above zero needs attention.",
        ),
        Panel(
            "Controller",
            "short",
            {
                "active controllers": f"sum({_CONTROLLER}activecontrollercount)",
                "partitions without a leader": f"max({_CONTROLLER}offlinepartitionscount)",
                "brokers": f"max({_CONTROLLER}activebrokercount)",
            },
            "A healthy cluster has exactly one active controller.",
        ),
        Panel(
            "Event loop lag",
            "s",
            _quantiles("barnabas_event_loop_lag_seconds"),
            "The delay of every request before it is handled.",
        ),
    ),
    "Traffic": (
        Panel("Bytes in", "Bps", {"{{topic}}": f"sum by (topic) (rate({_TOPICS}bytesin_total[]))"}),
        Panel(
            "Bytes out", "Bps", {"{{topic}}": f"sum by (topic) (rate({_TOPICS}bytesout_total[]))"}
        ),
        Panel(
            "Records in",
            "cps",
            {"{{topic}}": f"sum by (topic) (rate({_TOPICS}messagesin_total[]))"},
        ),
    ),
    "Requests": (
        Panel(
            "Requests",
            "reqps",
            {"{{request}}": f"sum by (request) (rate({_REQUESTS}requests_total[]))"},
        ),
        Panel(
            "Errors",
            "reqps",
            {"{{request}} {{error}}": f"sum by (request, error) (rate({_REQUESTS}errors_total[]))"},
            "Error codes in responses; some are part of normal operation.",
        ),
        Panel(
            "Response time, p99",
            "ms",
            {"{{request}}": _quantile(0.99, f"{_REQUESTS}totaltimems", "request")},
            "Includes the wait for acks, fetch.min.bytes or a rebalance.",
        ),
        Panel(
            "Connections",
            "short",
            {"{{listener}}": f"sum by (listener) ({_SOCKETS}connection_count)"},
        ),
        Panel(
            "Connections opened and refused",
            "cps",
            {
                "opened {{listener}}": (
                    f"sum by (listener) (rate({_SOCKETS}connection_creation_total[]))"
                ),
                "refused {{listener}}": (
                    "sum by (listener) (rate(barnabas_server_connections_refused_total[]))"
                ),
            },
        ),
        Panel(
            "Request bytes in progress",
            "bytes",
            {"bytes": "sum(kafka_network_socketserver_memorypoolused)"},
            "Bounded by queued.max.request.bytes.",
        ),
    ),
    "Replication and elections": (
        Panel(
            "Replication",
            "Bps",
            {
                "all": f"sum(rate({_TOPICS}replicationbytesin_total[]))",
                "reassignments": f"sum(rate({_TOPICS}reassignmentbytesin_total[]))",
            },
            "Bytes that followers fetch from leaders.",
        ),
        Panel(
            "Lag of followers",
            "short",
            {"{{instance}}": "kafka_server_replicafetchermanager_maxlag"},
            "Committed records that a broker has not fetched, the most of one partition.",
        ),
        Panel(
            "ISR changes",
            "cps",
            {
                "shrinks": f"sum(rate({_REPLICAS}isrshrinks_total[]))",
                "expansions": f"sum(rate({_REPLICAS}isrexpands_total[]))",
                "failed": f"sum(rate({_REPLICAS}failedisrupdates_total[]))",
            },
        ),
        Panel(
            "Elections",
            "cps",
            {
                "all": f"sum(rate({_ELECTIONS}leaderelections_total[]))",
                "unclean": f"sum(rate({_ELECTIONS}uncleanleaderelections_total[]))",
            },
            "An unclean election may lose acknowledged records.",
        ),
        Panel(
            "Not led by the preferred replica",
            "short",
            {"partitions": f"max({_CONTROLLER}preferredreplicaimbalancecount)"},
        ),
        Panel(
            "Partitions being reassigned",
            "short",
            {"partitions": f"sum({_REPLICAS}reassigningpartitions)"},
        ),
    ),
    "Transactions": (
        Panel(
            "Transactional ids by state",
            "short",
            {"{{state}}": f"sum by (state) ({_TRANSACTIONS}transactionalids)"},
        ),
        Panel(
            "Decided, not complete",
            "short",
            {
                "markers queued": f"sum({_MARKERS}queuedmarkers)",
                "markers without a leader": f"sum({_MARKERS}unknowndestinationqueuesize)",
                "completions to write again": f"sum({_MARKERS}logappendretryqueuesize)",
                "requests that wait": f"sum({_TRANSACTIONS}waiters)",
            },
        ),
        Panel(
            "Open for long",
            "short",
            {
                "past their timeout": "sum(barnabas_transactions_overdue)",
                "kept by two-phase commit": "sum(barnabas_transactions_kept)",
                "passed by retention": (
                    "sum(increase(barnabas_log_opentransactionspassedbyretention_total[]))"
                ),
            },
        ),
        Panel(
            "Oldest kept transaction",
            "s",
            {"age": "max(barnabas_transactions_kept_oldest_age_seconds)"},
        ),
        Panel(
            "Verification time",
            "ms",
            _quantiles("kafka_server_addpartitionstotxnmanager_verificationtimems"),
            "A leader asks the coordinator before the first record of a transaction.",
        ),
        Panel(
            "Verification failures",
            "cps",
            {
                "failures": (
                    "sum(rate(kafka_server_addpartitionstotxnmanager_"
                    "verificationfailurerate_total[]))"
                )
            },
        ),
    ),
    "Lag and groups": (
        Panel(
            "Lag",
            "short",
            {
                "{{consumergroup}} {{topic}}": (
                    "sum by (consumergroup, topic) (kafka_consumergroup_lag)"
                )
            },
            f"Offsets between the committed one and the high watermark, as in Kafka. {_LAG}",
        ),
        Panel(
            "Records to read",
            "short",
            {
                "{{consumergroup}} {{topic}}": (
                    "sum by (consumergroup, topic) (barnabas_consumergroup_records_to_read)"
                )
            },
            f"Records that a read_committed consumer of the group will still be given. {_LAG}",
        ),
        Panel(
            "Records held back",
            "short",
            {
                "{{consumergroup}} {{topic}}": (
                    "sum by (consumergroup, topic) (barnabas_consumergroup_records_held_back)"
                )
            },
            f"Records that wait for the end of an open transaction. {_LAG}",
        ),
        Panel(
            "Groups by state",
            "short",
            {
                "classic, {{state}}": f"sum by (state) ({_GROUPS}groupmetadatamanager_numgroups)",
                "consumer, {{state}}": (
                    "sum by (state) (kafka_server_group_coordinator_metrics_consumer_group_count)"
                ),
            },
        ),
        Panel(
            "Committed offsets",
            "short",
            {"offsets": f"sum({_GROUPS}groupmetadatamanager_numoffsets)"},
        ),
        Panel(
            "Offset commits",
            "cps",
            {
                "commits": (
                    "sum(rate(kafka_server_group_coordinator_metrics_offset_commit_count_total[]))"
                )
            },
        ),
    ),
    "Storage and process": (
        Panel(
            "Log size",
            "bytes",
            {"{{topic}}": "sum by (topic) (kafka_log_log_size)"},
            "Empty with metrics.partitions.enable=false.",
        ),
        Panel(
            "Free space",
            "bytes",
            {"{{instance}} {{directory}}": "barnabas_log_directory_free_bytes"},
        ),
        Panel("fsync time", "ms", _quantiles("kafka_log_logflushstats_logflushrateandtimems")),
        Panel(
            "Partitions",
            "short",
            {
                "replicas": f"sum({_REPLICAS}partitioncount)",
                "led": f"sum({_REPLICAS}leadercount)",
                "failed directories": "sum(kafka_log_logmanager_offlinelogdirectorycount)",
            },
        ),
        Panel("Live producer ids", "short", {"producer ids": f"sum({_REPLICAS}produceridcount)"}),
        Panel("Memory", "bytes", {"{{instance}}": "process_resident_memory_bytes"}),
        Panel("CPU", "percentunit", {"{{instance}}": "rate(process_cpu_seconds_total[])"}),
    ),
}


def _selected(query: str) -> str:
    """Return a query for the brokers, topics and time that are chosen on the dashboard."""
    topics = ',topic=~"$topic"' if re.search(r"by \(.*\btopic\b.*?\)", query) else ""
    chosen = f'{{instance=~"$instance"{topics}}}'
    return _SERIES.sub(lambda name: name[0] + chosen, query).replace("[]", "[$__rate_interval]")


def dashboard() -> str:
    """Return the text of the file, as Grafana imports it."""
    return (
        json.dumps(
            {
                "title": "Barnabas",
                "uid": "barnabas",
                "tags": ["kafka", "barnabas"],
                "schemaVersion": 39,
                "editable": True,
                "refresh": "30s",
                "time": {"from": "now-1h", "to": "now"},
                "templating": {"list": list(_variables())},
                "panels": list(_panels()),
            },
            indent=2,
        )
        + "\n"
    )


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
    }
    for name, label, metric in (
        ("instance", "Broker", "barnabas_event_loop_lag_seconds_count"),
        ("topic", "Topic", f"{_TOPICS}bytesin_total"),
    ):
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": f"label_values({metric}, {name})", "refId": name},
            "includeAll": True,
            "multi": True,
            "current": {"text": ["All"], "value": ["$__all"]},
            "refresh": 2,
            "sort": 1,
        }


def _panels() -> Iterator[dict[str, Any]]:
    """Yield the rows and their panels, each with its place on the grid."""
    number, y = 0, 0
    for title, panels in ROWS.items():
        number += 1
        place = {"x": 0, "y": y, "w": _WIDTH * _IN_A_ROW, "h": 1}
        yield {
            "id": number,
            "title": title,
            "type": "row",
            "collapsed": False,
            "panels": [],
            "gridPos": place,
        }
        y += 1
        for at, panel in enumerate(panels):
            number += 1
            line, column = divmod(at, _IN_A_ROW)
            place = {"x": column * _WIDTH, "y": y + line * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            yield _graph(number, panel, place)
        y += -(-len(panels) // _IN_A_ROW) * _HEIGHT


def _graph(number: int, panel: Panel, place: Mapping[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "title": panel.title,
        "type": "timeseries",
        "datasource": _SOURCE,
        "gridPos": place,
        "description": panel.text,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": _selected(query), "legendFormat": legend}
            for index, (legend, query) in enumerate(panel.queries.items())
        ],
    }
