"""`barnabas pipeline`: run, check and watch jobs on Spark."""

import importlib.util
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from barnabas.cli.client_file import SERVERS
from barnabas.cli.common import (
    Target,
    cluster_options,
    seconds_of,
)
from barnabas.cli.help import Group
from barnabas.cli.registered import registry_keys
from barnabas.cli.shared_options import command_config, refused, timeout_option

if TYPE_CHECKING:
    from barnabas.operations.answers import pipeline as answers
    from barnabas.operations.sinks.decisions import DecidedWinner
    from barnabas.pipeline.jobs import verification
    from barnabas.pipeline.jobs.lineage import RecordRange
    from barnabas.pipeline.jobs.reading import JobFile
    from barnabas.pipeline.jobs.spec import Job
    from barnabas.pipeline.monitor.progress import Monitor, Progress
    from barnabas.pipeline.sink import recover as recovering

_EXTRA: Final = ("pyspark", "pyarrow", "numpy", "yaml")
_LOG_LEVELS: Final = ("off", "error", "warn", "info", "debug")

Command = TypeVar("Command", bound=Callable[..., object])


@click.group(cls=Group)
def pipeline() -> None:
    """Run, check and watch jobs on Spark; recover a sink, verify its output."""


def _need_extra(*more: str) -> None:
    """Fail with one line if the optional packages are not installed."""
    missing = [name for name in (*_EXTRA, *more) if importlib.util.find_spec(name) is None]
    if missing:
        raise click.ClickException(
            f"the pipeline needs {', '.join(missing)}: pip install 'barnabas[spark]'"
        )


def _job_argument(command: Command) -> Command:
    """Add the argument JOB.yaml and the options that overrule its brokers and its security."""
    brokers = click.option(
        "-b",
        "--bootstrap-server",
        envvar="BARNABAS_BOOTSTRAP_SERVER",
        help="HOST:PORT of one or more brokers, instead of the file's `bootstrap`.",
    )
    path = click.argument("path", metavar="JOB.yaml", type=click.Path(path_type=Path))
    return path(brokers(command_config(command)))


def _read(path: Path, bootstrap: str | None, properties: Mapping[str, str]) -> "JobFile":
    _need_extra()
    from barnabas.client.security import KEYS
    from barnabas.pipeline.jobs.reading import read_job
    from barnabas.registry.settings import read_settings

    file = read_job(path)
    changed: dict[str, Any] = {}
    if bootstrap := bootstrap or properties.get(SERVERS):
        changed["bootstrap"] = bootstrap
    if "security.protocol" in properties:
        # The file may have other keys of a client, such as those of a consumer.
        changed["security"] = {key: text for key, text in properties.items() if key in KEYS}
    if registry := registry_keys(properties):
        with refused():
            read_settings(registry)
        changed["registry"] = registry
    file.job = file.job.model_copy(update=changed)
    return file


def _target(
    job: "Job", properties: Mapping[str, str], timeout: float | None, *, as_json: bool
) -> Target:
    """Return the cluster of a job, with client id and timeouts of --command-config."""
    from barnabas.config.client_keys import ClientKeys

    keys = {name: text for name, text in properties.items() if name in ClientKeys.KEYS}
    return Target(job.bootstrap, seconds_of(timeout, keys), as_json, {**keys, **job.security})


_LOG_LEVEL = click.option(
    "--log-level",
    type=click.Choice(_LOG_LEVELS, case_sensitive=False),
    default="off",
    show_default=True,
    help="Level of Spark's log, on standard error.",
)


# -- run -----------------------------------------------------------------------------------------


@pipeline.command()
@_job_argument
@click.option("-J", "--json", "as_json", is_flag=True, help="Print each batch as a line of JSON.")
@click.option("--http", metavar="HOST:PORT", help="Serve a page, /progress and /metrics here.")
@_LOG_LEVEL
def run(
    path: Path,
    bootstrap_server: str | None,
    properties: Mapping[str, str],
    as_json: bool,
    http: str | None,
    log_level: str,
) -> None:
    """Run a job until Ctrl-C; the next run continues where it ended.

    On a terminal its progress is shown in place, else as one line for each batch.
    """
    file = _read(path, bootstrap_server, properties)
    from barnabas.pipeline.jobs.topics import missing_topics
    from barnabas.pipeline.monitor.progress import Monitor
    from barnabas.pipeline.monitor.sink_state import SinkWatch
    from barnabas.pipeline.spark.job import run_job

    job = file.job
    # Spark takes long to start, and would tell the same then.
    target = _target(job, properties, None, as_json=as_json)
    if problems := target.run(lambda cluster: missing_topics(cluster, job)):
        raise file.failure(problems)
    monitor = Monitor(job.name, job.sink_id, time.time())
    stop = threading.Event()
    with ExitStack() as stack:
        if http is not None:
            stack.enter_context(_page(http, monitor))
        tell = stack.enter_context(_teller(target))
        stack.enter_context(_stopping(stop))
        watch = stack.enter_context(SinkWatch(job.bootstrap, job.sink_id, target.connect()))
        run_job(file, monitor, tell, stop, log_level=log_level, read_sink=watch.read)


@contextmanager
def _stopping(stop: threading.Event) -> Iterator[None]:
    """Let SIGINT and SIGTERM set `stop`; a second signal ends the program."""

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, handle) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def _page(address: str, monitor: "Monitor") -> Iterator[None]:
    from barnabas.client.cluster import parse_address
    from barnabas.pipeline.monitor.web import WebPage, routes

    try:
        host, port = parse_address(address)
    except ValueError as error:
        raise click.UsageError(f"--http: {error}") from None
    try:
        page = WebPage(host, port, routes(lambda: monitor.progress(time.time())))
    except OSError as error:
        raise click.ClickException(f"--http {address}: {error.strerror}") from None
    page.start()
    click.echo(f"The page of the job is {page.address}", err=True)
    try:
        yield
    finally:
        page.stop()


@contextmanager
def _teller(target: Target) -> Iterator[Callable[["Progress"], None]]:
    """Yield the function that shows progress: in place, or as a line for each batch."""
    from barnabas.pipeline.monitor import view

    if not target.as_json and sys.stdout.isatty():
        from rich.live import Live

        with Live(auto_refresh=False) as live:
            yield lambda progress: live.update(view.render(progress), refresh=True)
        return
    told: list[tuple[str, int]] = []

    def tell(progress: "Progress") -> None:
        now = (progress.state, progress.batches)
        if not told or told[-1] != now:
            told[:] = [now]
            if target.as_json:
                target.answer(progress, indent=None)
            else:
                click.echo(view.line(progress))
            sys.stdout.flush()

    yield tell


@pipeline.command()
@_job_argument
@click.option("--plan", is_flag=True, help="Print Spark's plan of the queries.")
@_LOG_LEVEL
def check(
    path: Path,
    bootstrap_server: str | None,
    properties: Mapping[str, str],
    plan: bool,
    log_level: str,
) -> None:
    """Check a job file and plan its queries, without running them.

    The brokers are not asked.
    """
    file = _read(path, bootstrap_server, properties)
    from barnabas.pipeline.spark.job import check_job

    text = check_job(file, log_level=log_level)
    if plan:
        click.echo(text)
    click.echo(f"{path}: job {file.job.name} is correct")


# -- package -------------------------------------------------------------------------------------


@pipeline.command()
@click.argument("path", metavar="JOB.yaml", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file, whose name ends in .py. [default: the job's name, in this folder]",
)
def package(path: Path, output: Path | None) -> None:
    """Write a job as one file that spark-submit runs on a cluster.

    It has the job, Barnabas and the packages that it imports; the cluster has Spark, and the same
    Python. Neither brokers nor Spark are asked: see `barnabas pipeline check`. The same job and
    packages give the same bytes.
    """
    _need_extra("packaging")
    from barnabas.pipeline.jobs.package import (
        ENDING,
        check_package,
        plan_package,
        write_package,
    )
    from barnabas.pipeline.jobs.reading import read_job
    from barnabas.pipeline.spark.job_options import check_options

    file = read_job(path, packs=True)
    file.located(lambda: check_options(file.job))
    check_package(file)
    to = output or Path(f"{file.job.name}{ENDING}")
    if to.suffix != ENDING:
        raise click.ClickException(
            f"--output {to}: spark-submit runs only files whose names end in {ENDING}"
        )
    made = plan_package(file)
    size = write_package(made, to)
    versions = ", ".join(f"{name} {version}" for name, version in made.versions.items())
    click.echo(f"{to}: {size / 1e6:.0f} MB, for Python {made.python} on {made.platform}")
    click.echo(f"job: {', '.join(made.job_files)}")
    click.echo(f"packages: {versions}")
    click.echo("not in it: PySpark and Java, which the cluster has; secrets and other references")
    click.echo(f"spark-submit --master MASTER {to}")


# -- status, recover, verify -----------------------------------------------------------------------

_JSON = click.option("-J", "--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@pipeline.command()
@_job_argument
@timeout_option
@_JSON
def status(
    path: Path,
    bootstrap_server: str | None,
    properties: Mapping[str, str],
    timeout: float | None,
    as_json: bool,
) -> None:
    """Show how far a job is: its checkpoint, its lag, its last decision, open transactions.

    And what its last run has told there: lag by source, state, late rows and bad records. The job
    may run, here or elsewhere. A checkpoint that is not on a local disk is not read.
    """
    file = _read(path, bootstrap_server, properties)
    from barnabas.pipeline.jobs.checkpoint import read_checkpoint
    from barnabas.pipeline.monitor.file import ProgressFile
    from barnabas.pipeline.monitor.status import read_status, show

    job = file.job
    checkpoint = read_checkpoint(file.checkpoint)
    progress = ProgressFile(file.checkpoint).read()
    target = _target(job, properties, timeout, as_json=as_json)
    found = target.run(lambda cluster: read_status(cluster, job, checkpoint, progress))
    if as_json:
        target.answer(found)
        return
    for name, text in show(found):
        click.echo(f"{name + ':':<14}{text}")


@pipeline.command()
@click.argument("sink")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
@click.option("--accept", is_flag=True, help="After a loss: go on without the lost rows.")
@click.option(
    "--rewrite",
    is_flag=True,
    help="After a loss: let the job write the batch again; rows of its other tasks come twice.",
)
@cluster_options
def recover(target: Target, sink: str, dry_run: bool, accept: bool, rewrite: bool) -> None:
    """Carry out the last decision of a sink, and abort its other transactions.

    SINK is the sinkId of a job that never comes back, or whose error names this command. A driver
    that still runs is fenced, and its batch fails. Exit code 0: the last batch is whole, 3: rows
    are lost.
    """
    if accept and rewrite:
        raise click.UsageError("give --accept or --rewrite, not both")
    from barnabas.pipeline.sink.cluster_port import ClusterPort
    from barnabas.pipeline.sink.protocol import SinkError
    from barnabas.pipeline.sink.recover import recover as recover_sink

    try:
        found = target.run(
            lambda cluster: recover_sink(
                ClusterPort(cluster, sink),
                sink,
                dry_run=dry_run,
                accept=accept,
                rewrite=rewrite,
            )
        )
    except SinkError as error:
        raise click.ClickException(str(error)) from error
    if target.as_json:
        target.answer(recovery_of(found))
    else:
        click.echo("\n".join(found.lines))
    if not found.is_whole:
        raise click.exceptions.Exit(3)


def recovery_of(found: "recovering.Recovery") -> "answers.Recovery":
    """Return a recovery as an answer."""
    from barnabas.operations.answers import pipeline as answers

    def winners(decided: Iterable["DecidedWinner"]) -> list[answers.Winner]:
        return [
            answers.Winner(
                transactional_id=each.transactional_id,
                ongoing=answers.Producer(*each.ongoing),
                client=answers.Producer(*each.client),
                rows=each.rows,
                first=answers.Place(*each.first),
            )
            for each in decided
        ]

    return answers.Recovery(
        sink=found.sink_id,
        dry_run=found.dry_run,
        query=None if found.decision is None else found.decision.query_id,
        batch=None if found.decision is None else found.decision.number,
        committed=[each.transactional_id for each in found.to_commit],
        aborted=[each.transactional_id for each in found.to_abort],
        lost=winners(found.lost),
        unknown=winners(found.unknown),
        is_whole=found.is_whole,
    )


@pipeline.command()
@_job_argument
@click.option(
    "--missing",
    type=click.IntRange(0),
    help="Input records that may be missing, because the queries drop them. [default: 0; any"
    " number if the job has queries or a watermark]",
)
@timeout_option
@_JSON
def verify(
    path: Path,
    bootstrap_server: str | None,
    missing: int | None,
    properties: Mapping[str, str],
    timeout: float | None,
    as_json: bool,
) -> None:
    """Compare the output of a job with its input and with the sink's decisions.

    Input and output are compared by the headers that `lineage: true` adds. Exit code 0: no fault,
    3: faults found, 4: no output to verify, 1: the cluster could not be used.
    """
    file = _read(path, bootstrap_server, properties)
    from barnabas.pipeline.jobs.checkpoint import read_checkpoint
    from barnabas.pipeline.jobs.verification import verify as compare

    job = file.job
    checkpoint = read_checkpoint(file.checkpoint)
    allowed = 0 if missing is None and job.keeps_all else missing
    target = _target(job, properties, timeout, as_json=as_json)
    verdict = target.run(lambda cluster: compare(cluster, job, checkpoint, allowed))
    if as_json:
        target.answer(verdict_of(verdict))
    else:
        for line in verdict.lines:
            click.echo(line)
    raise click.exceptions.Exit(verdict.exit_code)


def verdict_of(found: "verification.Verdict") -> "answers.Verdict":
    """Return a verdict as an answer."""
    from barnabas.operations.answers import pipeline as answers

    def ranges(records: Iterable["RecordRange"]) -> list[answers.Range]:
        return [answers.Range(*each) for each in records]

    missing = ranges(found.missing)
    return answers.Verdict(
        job=found.job,
        rows=found.rows,
        with_lineage=found.with_lineage,
        inputs=found.inputs,
        repeated=ranges(found.repeated),
        missing=missing,
        missing_records=sum(each.records for each in missing),
        dropped=found.dropped,
        foreign=ranges(found.foreign),
        decisions=found.decisions,
        has_all_decisions=found.has_all_decisions,
        mismatches=[answers.Mismatch(*each) for each in found.mismatches],
        pending=found.pending,
        allowed_missing=found.allowed_missing,
        problems=found.problems,
    )


# -- example ---------------------------------------------------------------------------------------


@pipeline.command()
@click.option(
    "-d",
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("barnabas-example"),
    show_default=True,
    help="Folder of the job file and of the data, which begin anew with each run.",
)
@click.option(
    "-l",
    "--listen",
    # Not localhost: a container may lack IPv6, and still have ::1 as an address of that name.
    default="127.0.0.1:9092",
    show_default=True,
    metavar="HOST:PORT",
    help="Address of the first broker; the others get the next ports. Port 0: any free ports.",
)
@click.option(
    "--http",
    default="127.0.0.1:8088",
    show_default=True,
    metavar="HOST:PORT",
    help="Address of the page.",
)
@click.option("--seed", default=1, show_default=True, help="Orders are the same for a seed.")
@click.option(
    "--rate",
    type=click.IntRange(2, 2000),
    default=50,
    show_default=True,
    help="Orders for each second, which is a minute in their own time.",
)
@click.option("--orders", type=click.IntRange(1), help="End after so many orders.")
@click.option("--seconds", type=click.FloatRange(1), help="End after this time.")
def example(**options: Any) -> None:
    """Run three brokers, a stream of orders and a job on Spark, with a page that kills them.

    Ctrl-C ends the stream and verifies the output: exit code 0: no fault, 3: faults found. The job
    file is written into the folder; a file that is there already is used as it is.
    """
    _need_extra()
    from barnabas.cli.processes.example import ExampleSettings, run_example

    verdict = run_example(ExampleSettings(**options))
    for line in verdict.lines:
        click.echo(line)
    raise click.exceptions.Exit(verdict.exit_code)
