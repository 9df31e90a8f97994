"""Spark's rules for queries over streams, checked before the start; errors name the place.

Spark has the rules; here are its sentences in ours, with what to change in the job file.
"""

import re
from typing import Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from barnabas.pipeline.jobs.reading import TextProblem
from barnabas.pipeline.jobs.spec import Job, Problem
from barnabas.pipeline.spark.plan import JobPlan, PlannedStep, one_line, position_in

_JOIN: Final = r"\bjoin\b"
_JOINS: Final = {
    "LeftOuter": ("LEFT JOIN", r"\bleft\s+(outer\s+)?join\b"),
    "RightOuter": ("RIGHT JOIN", r"\bright\s+(outer\s+)?join\b"),
    "FullOuter": ("FULL JOIN", r"\bfull\s+(outer\s+)?join\b"),
    "LeftSemi": ("LEFT SEMI JOIN", r"\bleft\s+semi\s+join\b"),
    "LeftAnti": ("LEFT ANTI JOIN", r"\b(left\s+)?anti\s+join\b"),
}
_BOUND: Final = "such as b.at BETWEEN a.at AND a.at + INTERVAL 5 MINUTES"


class _Rule(NamedTuple):
    """A sentence of Spark, ours, and where in a query it is about."""

    of_spark: str
    ours: str
    place: str


_RULES: Final = (
    _Rule(
        r"Stream-stream (\w+) join .* without a watermark",
        "a {join} of two streams has to know when no match can come any more: give both sides a"
        f" watermark, and ON a bound of time, {_BOUND}",
        _JOIN,
    ),
    _Rule(
        r"(\w+) join between two streaming .* only in Append",
        "a {join} of two streams needs the mode append",
        _JOIN,
    ),
    _Rule(
        r"(LeftAnti) joins? with a streaming .* on the right",
        "a {join} cannot have a stream on its right: use LEFT JOIN with watermarks and a bound of"
        " time, and WHERE for rows without a match",
        _JOIN,
    ),
    _Rule(
        r"(\w+) joins? with (a )?streaming .* static",
        "a {join} cannot keep the rows of a table that no record matches: put the stream on the"
        " left of LEFT JOIN, or use JOIN",
        _JOIN,
    ),
    _Rule(
        r"join without equality predicate",
        "a join of two streams needs an equality in ON, such as a.id = b.id",
        _JOIN,
    ),
    _Rule(
        r"append. .* not supported for streaming aggregations without watermark",
        "rows of a group are written in mode append when its time has passed: group by a column"
        " with a watermark or a window of it, or choose the mode update",
        r"\bgroup\s+by\b|\bselect\s+distinct\b",
    ),
    _Rule(
        r"possible 'correctness' issue due to global watermark",
        "a step with state behind another one may drop its rows as late: use the mode append, or"
        " a job of its own that reads the first one's output",
        r"\bjoin\b|\bgroup\s+by\b",
    ),
    _Rule(
        r"Sorting is not supported",
        "a stream has no end at which it could be sorted: remove ORDER BY",
        r"\border\s+by\b|\bsort\s+by\b",
    ),
    _Rule(
        r"Distinct aggregations are not supported",
        "a stream cannot count distinct values: use approx_count_distinct, or a dedupe before",
        r"\(\s*distinct\b",
    ),
    _Rule(
        r"Window function is not supported",
        "a stream has no functions OVER a window of rows: GROUP BY window(column, '1 minute')",
        r"\bover\b",
    ),
)


def check_streaming(spark: SparkSession, job: Job, plan: JobPlan) -> None:
    """Ask Spark whether the queries can be a stream; raises Problem at the step that cannot."""
    refused = _refusal(spark, plan.rows, job.mode)
    if refused is None:
        return
    for step in plan.steps:
        found = _refusal(spark, step.view, job.mode)
        # Mode complete asks for an aggregate, which the steps before it do not have.
        if found is not None and one_line(found) == one_line(refused):
            raise _problem_of(step, found)
    raise Problem((*job.outputs[0][0], "mode"), _explained(refused)[0])


def _refusal(spark: SparkSession, view: DataFrame, mode: str) -> PySparkException | None:
    """Return Spark's error about a view as a stream; None if it can be one."""
    jvm = spark._jvm
    assert jvm is not None
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    chosen = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[mode]
    simple = jvm.org.apache.spark.sql.execution.ExplainMode.fromString("simple")
    try:
        checker.checkForStreaming(view._jdf.queryExecution().analyzed(), chosen())
        # Some rules Spark has in its planner, which a query meets in its first batch. The planner
        # takes a view for a stream if its root is analyzed, which that of a SQL text is not.
        view.select("*")._jdf.queryExecution().explainString(simple)
    except PySparkException as error:
        return error
    return None


def _problem_of(step: PlannedStep, refused: PySparkException) -> Problem:
    text, place = _explained(refused)
    if step.sql is None:
        return Problem(step.location, text)
    line, column = position_in(step.sql, refused)
    if found := re.search(place, step.sql, re.IGNORECASE):
        before = step.sql[: found.start()]
        line, column = before.count("\n"), len(before) - before.rfind("\n") - 1
    return TextProblem((*step.location, "sql"), text, line, column)


def _explained(refused: PySparkException) -> tuple[str, str]:
    """Return the explanation of an error, and the pattern of the words of a query it is about."""
    text = one_line(refused)
    for rule in _RULES:
        if found := re.search(rule.of_spark, text):
            kind = found[1] if found.groups() else ""
            join, place = _JOINS.get(kind, ("JOIN", rule.place))
            return rule.ours.format(join=join), place
    return text, r"\A"
