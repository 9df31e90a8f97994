"""`barnabas verify`: test the guarantees of a cluster."""

import asyncio
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import click

from barnabas.cli.common import Target, client_keys, cluster_options
from barnabas.cli.help import Group
from barnabas.operations.answers import verify as answers
from barnabas.verify.disk.checkpoints import UnreadableFile
from barnabas.verify.disk.compare import compare
from barnabas.verify.history import FAIL, INFO, OK, Counts, read_history
from barnabas.verify.judge import Verdict, judge
from barnabas.verify.options import BOTH, NEWER, OLDER, Options
from barnabas.verify.report import (
    comparison_exit_code,
    exit_code,
    show,
    show_comparison,
    word,
)
from barnabas.verify.runner import WORKLOADS, require_usable, run

Look = Callable[[Counts], None]


@click.group(cls=Group)
def verify() -> None:
    """Test with a generated load whether a cluster keeps its guarantees."""


@verify.group(invoke_without_command=True)
@click.option(
    "-w",
    "--workload",
    type=click.Choice(list(WORKLOADS)),
    default="queue",
    show_default=True,
    metavar="NAME",
    help=f"Kind of load: {', '.join(WORKLOADS)}.",
)
@click.option(
    "-d",
    "--duration",
    type=click.FloatRange(min=0),
    default=20.0,
    show_default=True,
    help="Seconds of load.",
)
@click.option("-s", "--seed", default=0, show_default=True, help="Seed of the random choices.")
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1),
    default=6,
    show_default=True,
    help="Partitions of each topic.",
)
@click.option(
    "-n",
    "--producers",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="Number of producers.",
)
@click.option(
    "--protocol",
    type=click.Choice([NEWER, OLDER, BOTH]),
    default=BOTH,
    show_default=True,
    help="Transaction protocol (KIP-890).",
)
@click.option(
    "--transaction-timeout",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    help="Timeout of a transaction in seconds.",
)
@click.option("-r", "--replication-factor", default=-1, help="For the topics; -1: broker default.")
@click.option(
    "--min-insync-replicas", type=click.IntRange(1), help="For the topics; else broker default."
)
@click.option(
    "--churn", is_flag=True, help="Reassign, elect leaders, create and delete topics meanwhile."
)
@click.option(
    "--recovery",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds after the load until all replicas must be in sync again.",
)
@click.option(
    "--delayed-ends",
    is_flag=True,
    help="Let commits of the older protocol arrive twice (Apache Kafka cannot refuse the second).",
)
@click.option("--keep", is_flag=True, help="Do not delete the topics.")
@click.option(
    "--history",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the history to this file.",
)
@cluster_options
@click.pass_context
def eos(context: click.Context, /, target: Target, path: Path | None, **chosen: Any) -> None:
    """Run transactions on a cluster, record a history of all operations, and check it.

    Works on any Kafka cluster, and creates its own topics. Exit code 0: no anomaly, 3: anomalies
    found, 4: too few operations succeeded, 1: the cluster could not be used. Ctrl-C ends the load
    early.
    """
    if context.invoked_subcommand is not None:
        return
    if "client.id" in target.properties:
        chosen["client_id"] = client_keys(target.properties).client_id
    options = Options(bootstrap=target.bootstrap, connect=target.connect(), **chosen)

    with _history_file(path) as file:
        with _shown(as_json=target.as_json) as (tell, look):
            problems = asyncio.run(_run(options, file, tell, look))
        file.flush()
        file.seek(0)
        verdict = judge(read_history(file))
    _finish(target, verdict, problems)


@contextmanager
def _shown(*, as_json: bool) -> Iterator[tuple[Callable[[str], None], Look | None]]:
    """Yield what tells the steps of a run, and on a terminal what shows its counts meanwhile."""
    if as_json:
        yield lambda _text: None, None
        return
    if not sys.stderr.isatty():
        yield partial(click.echo, err=True), None
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("") as status:
        yield (
            partial(console.print, markup=False, highlight=False),
            lambda counts: status.update(_told(counts)),
        )


def _told(counts: Counts) -> str:
    """Return what the events of a history say in one line."""
    sends, ends, reads = (counts[f, OK] for f in ("send", "end", "read"))
    failed, unknown = (
        sum(counts[f, outcome] for f in ("init", "send", "offsets", "end"))
        for outcome in (FAIL, INFO)
    )
    return (
        f"{sends:,} sends, {ends:,} transactions ended, {reads:,} reads; "
        f"{failed:,} failed, {unknown:,} unknown"
    )


async def _run(
    options: Options, file: IO[str], tell: Callable[[str], None], look: Look | None
) -> Mapping[str, int]:
    """Run the load; the first SIGINT ends it early, and the history is checked as usual."""
    enough = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        enough.set()

    loop.add_signal_handler(signal.SIGINT, end)
    await require_usable(options)
    return await run(options, file, tell, enough, look)


@eos.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-J", "--json", "as_json_", is_flag=True, help="Print JSON, for programs.")
def check(file: Path, as_json_: bool) -> None:
    """Check a history that was written with --history."""
    # A byte that is not UTF-8 is told with the number of its line, not by the file.
    with file.open(encoding="utf-8", errors="surrogateescape") as lines:
        verdict = judge(read_history(lines))
    _finish(Target("", 0.0, as_json_), verdict, {})


def _history_file(path: Path | None) -> IO[str]:
    """Open the history for writing and reading; without a path it is a temporary file."""
    return tempfile.TemporaryFile("w+") if path is None else path.open("w+")


def _finish(target: Target, verdict: Verdict, problems: Mapping[str, int]) -> None:
    if target.as_json:
        target.answer(answer_of(verdict, problems))
    else:
        show(verdict, problems)
    if verdict.is_unusable:
        last = list(problems)[-1] if problems else "no operation succeeded"
        raise click.ClickException(f"the cluster could not be used: {last}")
    raise click.exceptions.Exit(exit_code(verdict))


def answer_of(verdict: Verdict, problems: Mapping[str, int]) -> answers.Verdict:
    """Return a verdict as an answer, with the problems that interrupted parts of the run."""
    return answers.Verdict(
        verdict=word(verdict),
        run=_run_of(verdict.run.about),
        figures=answers.Figures(**verdict.figures),
        problems=dict(problems),
        checks=[
            answers.CheckResult(
                check=each.check.numbers,
                title=each.check.title,
                count=each.total,
                anomalies=[answers.Anomaly(*anomaly) for anomaly in each.anomalies],
            )
            for each in verdict.found
        ],
    )


def _run_of(about: Mapping[str, Any]) -> answers.Run | None:
    """Return the run of a history, with units in the names."""
    if not about:
        return None
    units = {"timeout": "timeout_seconds", "ids_kept": "ids_kept_seconds"}
    named = {units.get(name, name): value for name, value in about.items()}
    named["stages"] = [
        answers.Stage(source=each["from"], target=each["to"], group=each["group"])
        for each in about.get("stages", ())
    ]
    return answers.Run(**named)


@verify.command()
@click.argument(
    "directories",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option("-J", "--json", "as_json_", is_flag=True, help="Print JSON, for programs.")
def replicas(directories: tuple[Path, ...], as_json_: bool) -> None:
    """Compare the log directories of stopped brokers.

    Up to the high watermark replicas must have the same bytes; leader epochs and producer snapshots
    must match the batches. Exit code 0: all match, 3: differences found, 4: nothing to compare,
    1: not a log directory.
    """
    try:
        found = compare(directories)
    except (FileNotFoundError, UnreadableFile) as error:
        raise click.ClickException(str(error)) from error
    if as_json_:
        Target("", 0.0, as_json_).answer(
            answers.Comparison(
                partitions=found.partitions,
                batches=found.batches,
                anomalies=[answers.Anomaly(*each) for each in found.anomalies],
            )
        )
    else:
        show_comparison(found)
    raise click.exceptions.Exit(comparison_exit_code(found))
