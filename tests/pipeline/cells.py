"""The cells of the sink matrix: each runs queries, and lets faults strike them."""

import json
import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from tests.pipeline.bench import PARTITIONS, Bench, Evidence, Stream
from tests.pipeline.declarative import DeclarativePipeline
from tests.pipeline.drivers import DriverProcess
from tests.pipeline.submitted import submitted_driver_killed, submitted_executor_killed
from tests.support.waiting import until

Play = Callable[[Bench, Evidence, str], list[Stream]]
"""A cell's play: it returns the streams whose output is judged; the text names them."""


class Cell(NamedTuple):
    """One row of the matrix."""

    name: str
    play: Play


STEPS: Final = ("list_open", "fence", "pin", "write_decision", "last_decision", "decide")
"""The steps of a commit up to its only commit point, as the port has them."""
CLEAN: Final = "abort tasks"
"""The last step of a commit: it has work if an attempt has left a transaction open."""
BATCH: Final = 1
"""The batch that faults strike: there is a decision before it, and a batch after it."""
BOUNDED: Final = "exactly-once-bounded"

FREE_WITHIN_S: Final = 5.0
"""Seconds for which a stopped query may hold up readers of its output."""


def _stream(
    bench: Bench,
    name: str,
    *,
    files: int = 3,
    kafka: str | None = None,
    topics: int = 1,
    is_join: bool = False,
    for_each: bool = False,
    from_topic: bool = False,
    counts: bool = False,
    **options: str,
) -> Stream:
    """Return a query with input; with a protocol of Apache Kafka, its sink is bounded and there."""
    if kafka is not None:
        options["delivery"] = BOUNDED
    servers = kafka and bench.kafka(kafka)
    stream = Stream(
        bench,
        name,
        servers=servers,
        topics=topics,
        is_join=is_join,
        for_each=for_each,
        from_topic=from_topic,
        counts=counts,
        **options,
    )
    stream.add(files)
    return stream


@contextmanager
def _work_for(site: str, evidence: Evidence, stream: Stream) -> Iterator[None]:
    """Let a worker exit in its transaction if the step at `site` would have nothing to abort."""
    if site != CLEAN:
        yield
        return
    left = stream.fault("task", "after", "exit", batch=BATCH, task=1, attempt=0)
    yield
    evidence.saw(left.has_struck, "a worker exited in its transaction")


def _run_on_another(bench: Bench, stream: Stream, *, tasks: int = 3) -> list[Stream]:
    """Run the query on another driver until no file is left."""
    another = bench.drivers.take()
    stream.run_well(another, tasks=tasks)
    bench.drivers.give_back(another)
    return [stream]


# -- the driver dies -----------------------------------------------------------------------------


def driver_killed(
    bench: Bench,
    evidence: Evidence,
    name: str,
    *,
    site: str,
    when: str,
    tasks: int = 3,
    kafka: str | None = None,
    **shape: Any,
) -> list[Stream]:
    """Kill the driver before or after a step; another one continues at its checkpoint."""
    stream = _stream(bench, name, kafka=kafka, **shape)
    fault = stream.fault(site, when, "kill driver", batch=BATCH, callback="commit")
    driver = bench.drivers.take()
    bench.drivers.start_spare()
    with _work_for(site, evidence, stream):
        killed = stream.run_until_killed(driver)
    evidence.saw(fault.has_struck and killed, f"driver killed {when} step {site!r}")
    return _run_on_another(bench, stream, tasks=tasks)


# -- a step fails --------------------------------------------------------------------------------


def step_fails(
    bench: Bench,
    evidence: Evidence,
    name: str,
    *,
    site: str,
    when: str,
    action: str = "raise",
    kafka: str | None = None,
) -> list[Stream]:
    """Let a step raise, or lose its answer; Spark aborts, and the same session starts again."""
    stream = _stream(bench, name, kafka=kafka)
    fault = stream.fault(site, when, action, batch=BATCH, callback="commit")
    driver = bench.drivers.take()
    error = stream.run(driver)
    evidence.saw(fault.has_struck, f"{action} {when} step {site!r}", error=_last_line(error))
    evidence.saw(error is not None, "the query ended with an error")
    stream.run_well(driver)
    bench.drivers.give_back(driver)
    return [stream]


# -- tasks ---------------------------------------------------------------------------------------


def task_fails(
    bench: Bench,
    evidence: Evidence,
    name: str,
    *,
    site: str,
    when: str,
    action: str,
    kafka: str | None = None,
) -> list[Stream]:
    """Let the first attempt at a task fail, or its worker exit; a second attempt wins."""
    stream = _stream(bench, name, kafka=kafka)
    fault = stream.fault(site, when, action, batch=BATCH, task=1, attempt=0)
    driver = bench.drivers.take()
    stream.run_well(driver)
    evidence.saw(fault.has_struck, f"{action} {when} {site!r} of task 1")
    bench.drivers.give_back(driver)
    return [stream]


def executor_killed(bench: Bench, evidence: Evidence, name: str, *, when: str) -> list[Stream]:
    """Kill an executor while or after one of its tasks has written; others finish the batch."""
    stream = _stream(bench, name)
    site = "rows" if when == "while" else "task"
    fault = stream.fault(site, "after", "kill executor", batch=BATCH, task=1, attempt=0)
    driver = bench.on_executors.take()
    stream.run_well(driver, tasks=4)
    evidence.saw(fault.has_struck, f"an executor was killed {when} its task wrote")
    bench.on_executors.give_back(driver)
    return _end_losers(bench, stream)


def speculation(bench: Bench, evidence: Evidence, name: str, *, site: str) -> list[Stream]:
    """Let a task be slow until its copy on another host has won, and the batch is decided."""
    stream = _stream(bench, name)
    slow = stream.fault(site, "after", "wait", batch=BATCH, task=1, speculative=False)
    copy = stream.fault("task", "after", "note", batch=BATCH, task=1, speculative=True)
    decided = stream.fault("commit", "after", "note", batch=BATCH)
    driver = bench.on_executors.take()
    stream.start(driver, tasks=4)
    slow.wait()
    copy.wait()
    evidence.saw(copy.has_struck, "a copy of the slow task has written the rows again")
    decided.wait()
    slow.go()
    error = driver.order("await", query=stream.name)
    assert error is None, error
    evidence.saw(slow.has_struck, "the slow task was let go after the decision")
    bench.on_executors.give_back(driver)
    return _end_losers(bench, stream)


def late_loser(bench: Bench, evidence: Evidence, name: str) -> list[Stream]:
    """Let a slow task write after the open transactions are listed: the next batch ends its own."""
    stream = _stream(bench, name, files=BATCH + 1)
    slow = stream.fault("task", "before", "wait", batch=BATCH, task=1, speculative=False)
    wrote = stream.fault("task", "after", "note", batch=BATCH, task=1, speculative=False)
    listed = stream.fault("list_open", "after", "wait", batch=BATCH, callback="commit")
    driver = bench.on_executors.take()
    stream.start(driver, tasks=4)
    listed.wait()
    evidence.saw(slow.has_struck and not wrote.has_struck, "a copy of the slow task has won")
    slow.go()
    wrote.wait()
    listed.go()
    error = driver.order("await", query=stream.name)
    assert error is None, error
    evidence.saw(len(stream.open_transactions()) == 1, "the loser's transaction stayed open")
    bench.on_executors.give_back(driver)
    return _end_losers(bench, stream)


def _end_losers(bench: Bench, stream: Stream) -> list[Stream]:
    """Run another batch without speculation.

    On a loaded machine any task may get a copy. The one that loses may begin its transaction after
    the open ones are listed; the next batch ends it.
    """
    stream.add(1)
    return _run_on_another(bench, stream)


def killed_in_abort(bench: Bench, evidence: Evidence, name: str, *, site: str) -> list[Stream]:
    """Let a commit raise, and kill the driver in the abort that follows."""
    stream = _stream(bench, name)
    failed = stream.fault("pin", "after", "raise", batch=BATCH, callback="commit")
    fault = stream.fault(site, "after", "kill driver", batch=BATCH, callback="abort")
    driver = bench.drivers.take()
    bench.drivers.start_spare()
    killed = stream.run_until_killed(driver)
    evidence.saw(failed.has_struck, "the commit raised after step 'pin'")
    evidence.saw(fault.has_struck and killed, f"driver killed after step {site!r} of abort")
    return _run_on_another(bench, stream)


def stopped_query(bench: Bench, evidence: Evidence, name: str) -> list[Stream]:
    """Stop a query in mid-batch: its open transactions hold up readers for 5 s at most."""
    stream = _stream(bench, name)
    fault = stream.fault("task", "after", "wait", batch=BATCH, task=1)
    driver = bench.drivers.take()
    stream.start(driver)
    fault.wait()
    evidence.saw(stream.open_transactions(), "a task held its transaction open")
    began = time.monotonic()
    driver.order("stop", query=stream.name)
    until(stream.have_ended)
    took = time.monotonic() - began
    evidence.saw(took < FREE_WITHIN_S, f"readers were free {took:.1f} s after the stop began")
    fault.go()
    stream.run_well(driver)
    bench.drivers.give_back(driver)
    return [stream]


# -- two drivers ---------------------------------------------------------------------------------


def sleeper(
    bench: Bench,
    evidence: Evidence,
    name: str,
    *,
    site: str,
    when: str,
    ahead: int,
    kafka: str | None = None,
) -> list[Stream]:
    """Stop the process that commits, until another driver has finished the batch and later ones.

    `ahead` is the number of batches that the other driver finishes.
    """
    stream = _stream(bench, name, files=BATCH + ahead, kafka=kafka)
    first, second = bench.drivers.take(), bench.drivers.take()
    fault = stream.fault(site, when, "stop", batch=BATCH, callback="commit", driver=first.name)
    with _work_for(site, evidence, stream):
        stream.start(first)
        fault.wait()
    evidence.saw(fault.has_struck, f"{first.name} stopped {when} step {site!r}")
    stream.run_well(second)
    evidence.saw(True, f"{second.name} finished {ahead} batches meanwhile")
    fault.resume()
    error = first.order("await", query=stream.name)
    evidence.saw(error is not None, f"{first.name} ended with an error")
    stream.add(1)
    stream.run_well(second)
    bench.drivers.give_back(first)
    bench.drivers.give_back(second)
    return [stream]


def two_at_once(bench: Bench, evidence: Evidence, name: str) -> list[Stream]:
    """Start two drivers on one checkpoint at once; what both leave is finished by one."""
    stream = Stream(bench, name)
    stream.add(4)
    drivers = [bench.drivers.take(), bench.drivers.take()]
    for driver in drivers:
        driver.send("start", **stream.order())
    errors = [driver.answer() for driver in drivers]
    for driver, error in zip(drivers, errors, strict=True):
        if error is None:
            driver.send("await", query=stream.name)
    ends = [driver.answer() for driver, error in zip(drivers, errors, strict=True) if error is None]
    failed = [each for each in (*errors, *ends) if each is not None]
    evidence.saw(failed, "at least one of the drivers ended with an error")
    stream.run_well(drivers[0])
    for driver in drivers:
        bench.drivers.give_back(driver)
    return [stream]


def shared_sink(bench: Bench, evidence: Evidence, name: str) -> list[Stream]:
    """Use one sinkId for two queries: the second is refused and leaves nothing."""
    stream = _stream(bench, name)
    other = Stream(bench, f"{name}-other", sink_id=stream.sink_id)
    other.add(1)
    driver = bench.drivers.take()
    stream.run_well(driver)
    error = other.run(driver)
    evidence.saw(error and "takeOverFrom" in error, "the second query was refused")
    other.values = []
    stream.add(1)
    stream.run_well(driver)
    bench.drivers.give_back(driver)
    return [stream, other]


# -- checkpoints ---------------------------------------------------------------------------------


def checkpoint_deleted(bench: Bench, evidence: Evidence, name: str) -> list[Stream]:
    """Delete the checkpoint: the new query is refused, until it takes the sink over."""
    stream = _stream(bench, name)
    driver = bench.drivers.take()
    stream.run_well(driver)
    query = json.loads((stream.checkpoint / "metadata").read_text())["id"]
    shutil.rmtree(stream.checkpoint)
    error = stream.run(driver)
    evidence.saw(error and f"takeOverFrom={query}" in error, "the new query was refused")
    shutil.rmtree(stream.checkpoint)
    shutil.rmtree(stream.input)
    stream.input.mkdir()
    stream.add(2)
    stream.run_well(driver, takeOverFrom=query)
    bench.drivers.give_back(driver)
    return [stream]


def checkpoint_copied_back(bench: Bench, evidence: Evidence, name: str) -> list[Stream]:
    """Bring back an older copy of the checkpoint: batches that were decided are refused."""
    stream = Stream(bench, name)
    stream.add(1)
    driver = bench.drivers.take()
    stream.run_well(driver)
    copy = stream.copy_checkpoint("copy")
    stream.add(2)
    stream.run_well(driver)
    shutil.rmtree(stream.checkpoint)
    copy.rename(stream.checkpoint)
    error = stream.run(driver)
    evidence.saw(error is not None, f"the query was refused: {_last_line(error)}")
    bench.drivers.give_back(driver)
    return [stream]


def checkpoint_moved(bench: Bench, evidence: Evidence, name: str) -> list[Stream]:
    """Move the checkpoint: the query continues."""
    stream = _stream(bench, name)
    driver = bench.drivers.take()
    stream.run_well(driver)
    moved = stream.folder / "moved"
    stream.checkpoint.rename(moved)
    stream.checkpoint = moved
    evidence.saw(moved.exists(), "the checkpoint was moved")
    stream.add(2)
    stream.run_well(driver)
    bench.drivers.give_back(driver)
    return [stream]


# -- brokers -------------------------------------------------------------------------------------

Strike = Callable[[Evidence, Stream], None]


def while_waiting(
    bench: Bench, evidence: Evidence, name: str, *, site: str, when: str, strike: Strike
) -> list[Stream]:
    """Hold the driver, or a task, at a site, and let a fault strike the brokers meanwhile."""
    stream = _stream(bench, name)
    of_task = {"task": 1, "attempt": 0} if site == "rows" else {"callback": "commit"}
    fault = stream.fault(site, when, "wait", batch=BATCH, **of_task)
    driver = bench.drivers.take()
    with _work_for(site, evidence, stream):
        stream.start(driver)
        fault.wait()
    evidence.saw(fault.has_struck, f"held {when} {site!r}")
    strike(evidence, stream)
    fault.go()
    error = driver.order("await", query=stream.name)
    if error is not None:
        evidence.saw(True, f"the query ended with an error: {_last_line(error)}")
    bench.cluster.heal()
    for broker in set(bench.cluster.broker_ids) - set(bench.cluster.running):
        bench.cluster.start_broker(broker)
    bench.cluster.wait_until_in_sync()
    if error is not None:
        stream.run_well(driver)
    bench.drivers.give_back(driver)
    return [stream]


def kill_coordinator(evidence: Evidence, stream: Stream) -> None:
    """Kill the broker that coordinates the driver's id."""
    broker = stream.bench.cluster.coordinator_of(transactional_id=f"{stream.sink_id}.driver")
    stream.bench.cluster.kill(broker)
    evidence.saw(broker not in stream.bench.cluster.running, f"kill -9 of broker {broker}")


def kill_leader(evidence: Evidence, stream: Stream, *, of_output: bool = False) -> None:
    """Kill the broker that leads the decisions, or the output's first partition."""
    broker = stream.bench.cluster.leader_of(_topic(stream, of_output))
    stream.bench.cluster.kill(broker)
    evidence.saw(broker not in stream.bench.cluster.running, f"kill -9 of broker {broker}")


def cut_off_leader(evidence: Evidence, stream: Stream, *, of_output: bool = False) -> None:
    """Cut a leader as in `kill_leader` off from all others; it is deposed, and does not know."""
    cluster = stream.bench.cluster
    topic = _topic(stream, of_output)
    broker = cluster.leader_of(topic)
    others = [each for each in cluster.broker_ids if each != broker]
    cluster.cut_store(broker)
    cluster.partition([broker], others)
    until(lambda: cluster.leader_of(topic) != broker)
    evidence.saw(True, f"broker {broker} was deposed; clients still reach it")


def _topic(stream: Stream, of_output: bool) -> str:
    return stream.topic if of_output else f"{stream.sink_id}.decisions"


def move_coordinators(evidence: Evidence, stream: Stream) -> None:
    """Move the coordinators of the driver's id and of the open tasks' ids."""
    ids = [f"{stream.sink_id}.driver", *stream.open_transactions()]
    for each in ids:
        old = stream.bench.cluster.coordinator_of(transactional_id=each)
        new = next(broker for broker in stream.bench.cluster.running if broker != old)
        stream.bench.cluster.move_coordinator(new, transactional_id=each)
    evidence.saw(ids, f"coordinators of {len(ids)} ids moved")


def move_leaders(evidence: Evidence, stream: Stream) -> None:
    """Move the leaders of the decisions and of the output."""
    places = [(f"{stream.sink_id}.decisions", 0), *((stream.topic, p) for p in range(PARTITIONS))]
    for topic, partition in places:
        old = stream.bench.cluster.leader_of(topic, partition)
        new = next(broker for broker in stream.bench.cluster.running if broker != old)
        stream.bench.cluster.move_leader(topic, partition, new)
    evidence.saw(True, f"leaders of {len(places)} partitions moved")


def times_out(evidence: Evidence, stream: Stream) -> None:
    """Let the time pass that transactions have."""
    before = set(stream.open_transactions())
    stream.bench.cluster.jump_transaction_clock(3600)
    evidence.saw(before, f"the clock of transactions went on by 1 h, {len(before)} were open")


def output_grown(evidence: Evidence, stream: Stream) -> None:
    """Add partitions to the output."""
    stream.grow(PARTITIONS + 2)
    evidence.saw(stream.partitions == PARTITIONS + 2, "the output has more partitions")


def restarted_after_timeout(
    bench: Bench, evidence: Evidence, name: str, *, site: str, when: str
) -> list[Stream]:
    """Kill the driver, and start another when its transactions would have timed out."""
    stream = _stream(bench, name)
    fault = stream.fault(site, when, "kill driver", batch=BATCH, callback="commit")
    driver = bench.drivers.take()
    bench.drivers.start_spare()
    killed = stream.run_until_killed(driver)
    evidence.saw(fault.has_struck and killed, f"driver killed {when} step {site!r}")
    times_out(evidence, stream)
    return _run_on_another(bench, stream)


# -- Spark Connect -------------------------------------------------------------------------------


def client_killed(
    bench: Bench, evidence: Evidence, name: str, *, site: str, when: str, for_each: bool
) -> list[Stream]:
    """Kill the client before or after a step: the server ends the query without it."""
    stream = _stream(bench, name, for_each=for_each)
    fault = stream.fault(site, when, "kill client", batch=BATCH, callback="commit")
    client = bench.clients.take()
    bench.clients.start_spare()
    killed = stream.run_until_killed(client)
    evidence.saw(fault.has_struck and killed, f"client killed {when} step {site!r}")
    until(lambda: stream.has_finished(BATCH + 1), bench.connect_server.said)
    evidence.saw(True, "the server finished the query without its client")
    stream.add(1)
    return _run_by_another_client(bench, stream)


def client_replaced(
    bench: Bench, evidence: Evidence, name: str, *, site: str, for_each: bool
) -> list[Stream]:
    """Kill the client, and start the query by another one before the first run has ended."""
    stream = _stream(bench, name, for_each=for_each)
    fault = stream.fault(site, "before", "wait", batch=BATCH, callback="commit")
    client = bench.clients.take()
    bench.clients.start_spare()
    stream.start(client)
    fault.wait()
    client.kill()
    evidence.saw(not stream.has_finished(BATCH), f"client killed while a run waits before {site!r}")
    another = bench.clients.take()
    another.send("start", **stream.order())
    fault.go()
    error = another.answer() or another.order("await", query=stream.name)
    evidence.saw(True, f"the second run ended: {_last_line(error) or 'without an error'}")
    stream.run_well(another)
    bench.clients.give_back(another)
    return [stream]


def server_killed(
    bench: Bench, evidence: Evidence, name: str, *, site: str, when: str, for_each: bool
) -> list[Stream]:
    """Kill the server before or after a step, and start it again: a new client continues."""
    stream = _stream(bench, name, for_each=for_each)
    fault = stream.fault(site, when, "kill server", batch=BATCH, callback="commit")
    client = bench.clients.take()
    stream.start(client)
    client.send("await", query=stream.name)
    until(lambda: fault.has_struck, bench.connect_server.said)
    bench.connect_server.wait_until_dead()
    evidence.saw(fault.has_struck, f"server killed {when} step {site!r}")
    bench.connect_server.start()
    streams = _run_by_another_client(bench, stream)
    error = client.answer()
    evidence.saw(error is not None, f"its client was told: {(error or '').splitlines()[0][:200]}")
    client.kill()
    return streams


def _run_by_another_client(bench: Bench, stream: Stream) -> list[Stream]:
    another = bench.clients.take()
    stream.run_well(another)
    bench.clients.give_back(another)
    return [stream]


# -- declarative pipelines -----------------------------------------------------------------------


def declarative_killed(
    bench: Bench, evidence: Evidence, name: str, *, site: str, when: str
) -> list[Stream]:
    """Kill the JVM of `spark-pipelines` before or after a step; the next run continues."""
    stream = _stream(bench, name, from_topic=True)
    fault = stream.fault(site, when, "kill server", batch=BATCH, callback="commit")
    pipeline = DeclarativePipeline(stream)
    code, said = pipeline.run(is_over=lambda: fault.has_struck)
    evidence.saw(
        fault.has_struck and code, f"spark-pipelines killed {when} step {site!r}", error=said
    )
    _run_declared(pipeline)
    stream.add(1)
    _run_declared(pipeline)
    return [stream]


def declarative_retried(bench: Bench, evidence: Evidence, name: str, *, site: str) -> list[Stream]:
    """Let a step raise: `spark-pipelines` starts the flow again in the same run."""
    stream = _stream(bench, name, from_topic=True)
    fault = stream.fault(site, "after", "raise", batch=BATCH, callback="commit")
    _run_declared(DeclarativePipeline(stream))
    evidence.saw(fault.has_struck, f"raise after step {site!r}")
    return [stream]


def declarative_refreshed(bench: Bench, evidence: Evidence, name: str) -> list[Stream]:
    """Ask for a full refresh."""
    stream = _stream(bench, name, from_topic=True)
    pipeline = DeclarativePipeline(stream)
    _run_declared(pipeline)
    code, said = pipeline.run("--full-refresh-all")
    evidence.saw(code and "takeOverFrom" in said, "the full refresh was refused", error=said)
    return [stream]


def _run_declared(pipeline: DeclarativePipeline) -> None:
    code, said = pipeline.run()
    assert code == 0, said


# -- exactly-once-bounded ------------------------------------------------------------------------

SHORT_TIMEOUT_S: Final = 40
"""Seconds that transactions have on Apache Kafka, whose clock does not jump; half for a batch."""
DOUBLINGS: Final = 3
"""Retries of a batch on a slow machine, each with twice the timeout."""
TOO_SLOW: Final = ("used more than half of transactionTimeout", "were ended before the decision")
ENDED_WITHIN_S: Final = 60.0
"""Seconds after its timeout within which a transaction is aborted."""
LOST: Final = "were aborted by another client or by their timeout"


def _bounded_stream(bench: Bench, name: str, protocol: str) -> Stream:
    return _stream(bench, name, kafka=protocol, transactionTimeout=f"{SHORT_TIMEOUT_S} s")


def _timeout_s(stream: Stream) -> int:
    return int(stream.options["transactionTimeout"].removesuffix(" s"))


def in_time(stream: Stream, run: Callable[[], str | None]) -> str | None:
    """Run a query, and return its error.

    A batch that had too little time is refused before the fault can strike: run the query again
    with twice the timeout.
    """
    for _ in range(DOUBLINGS):
        error = run()
        if error is None or not any(text in error for text in TOO_SLOW):
            return error
        stream.options["transactionTimeout"] = f"{2 * _timeout_s(stream)} s"
    return run()


def bounded_too_late(
    bench: Bench, evidence: Evidence, name: str, *, protocol: str | None
) -> list[Stream]:
    """Let the transactions of a decided batch time out: the loss is told, task by task.

    Without a protocol on Barnabas. Where nothing times out, nothing is lost.
    """
    if protocol is None:
        stream = _stream(bench, name, delivery=BOUNDED)
    else:
        stream = _bounded_stream(bench, name, protocol)
    fault = stream.fault("decide", "after", "raise", batch=BATCH, callback="commit")
    driver = bench.drivers.take()
    error = in_time(stream, lambda: stream.run(driver))
    struck = error is not None and fault.has_struck
    evidence.saw(struck, "the commit raised after step 'decide'", error=_last_line(error))
    evidence.saw(len(stream.open_transactions()) > 1, "the abort left the decided transactions")
    if protocol is None:
        times_out(evidence, stream)
        until(stream.have_ended)
    elif protocol == "two-phase":
        # Only time shows that there is no timeout.
        time.sleep(_timeout_s(stream) + 2)
        evidence.saw(len(stream.open_transactions()) > 1, "no transaction timed out")
        stream.run_well(driver)
        bench.drivers.give_back(driver)
        return [stream]
    else:
        _wait_for_timeout(stream)
    return _told_loss(bench, evidence, stream, driver, stream.run(driver))


def bounded_asleep(bench: Bench, evidence: Evidence, name: str, *, protocol: str) -> list[Stream]:
    """Stop the process that commits until its decided transactions have timed out."""
    stream = _bounded_stream(bench, name, protocol)
    fault = stream.fault("carry out", "before", "stop", batch=BATCH, callback="commit")
    driver = bench.drivers.take()

    def run() -> str | None:
        stream.start(driver)
        return fault.struck_or_error()

    in_time(stream, run)
    fault.wait()
    evidence.saw(stream.open_transactions(), "the commit stopped before step 'carry out'")
    _wait_for_timeout(stream)
    fault.resume()
    return _told_loss(bench, evidence, stream, driver, driver.order("await", query=stream.name))


def _wait_for_timeout(stream: Stream) -> None:
    until(stream.have_ended, within_s=_timeout_s(stream) + ENDED_WITHIN_S)


def saw_loss(evidence: Evidence, error: str | None) -> None:
    """See that a query ended because rows are lost: a decision may also be slow, or unknown."""
    evidence.saw(error and LOST in error, f"the loss was told: {_last_line(error)}")


def _told_loss(
    bench: Bench, evidence: Evidence, stream: Stream, driver: DriverProcess, error: str | None
) -> list[Stream]:
    """See that the query ended with the loss of its second batch; the first is in the output."""
    saw_loss(evidence, error)
    stream.values = [each for each in stream.values if each.startswith("0-")]
    bench.drivers.give_back(driver)
    return [stream]


# -- many faults ---------------------------------------------------------------------------------

_ANYWHERE: Final = (
    *(
        (site, when, "raise")
        for site in (*STEPS, "carry out", "commit")
        for when in ("before", "after")
    ),
    *((site, "after", "lose answer") for site in (*STEPS, "carry out")),
    *((site, "after", "kill driver") for site in (*STEPS, "carry out", "commit")),
    *((site, "after", action) for site in ("rows", "task") for action in ("raise", "exit")),
)
ROUNDS: Final = 100
PER_KILL: Final = 8
"""A driver takes long to start: one fault in so many kills it."""


def soak(
    bench: Bench, evidence: Evidence, name: str, *, rounds: int = ROUNDS, seed: int = 1
) -> list[Stream]:
    """Let random faults strike one query, one after the other, until all have struck."""
    stream = Stream(bench, name)
    chance = random.Random(seed)
    gentle = [each for each in _ANYWHERE if each[2] != "kill driver"]
    deadly = [each for each in _ANYWHERE if each[2] == "kill driver"]
    driver = bench.drivers.take()
    for number in range(rounds):
        site, when, action = chance.choice(gentle if number % PER_KILL else deadly)
        facts: dict[str, object] = {"batch": number}
        if site in ("rows", "task"):
            facts.update(task=chance.randrange(3), attempt=0)
        elif site != "commit":
            facts.update(callback="commit")
        fault = stream.fault(site, when, action, **facts)
        stream.add(1, rows=chance.choice((20, 40)))
        tasks = chance.choice((3, 4))
        if stream.run_until_killed(driver, tasks=tasks):
            driver = bench.drivers.take()
        stream.run_well(driver, tasks=tasks)
        evidence.saw(fault.has_struck, f"{action} {when} {site}")
    bench.drivers.give_back(driver)
    return [stream]


def _last_line(error: str | None) -> str:
    """Return the line of an error that a user reads last: the exception of the worker."""
    lines = [each for each in (error or "").splitlines() if "Error:" in each]
    return (lines or [error or ""])[-1].strip()[:300]


def _cells() -> Iterator[Cell]:
    yield from _cells_of_drivers()
    yield from _cells_of_tasks()
    yield from _cells_of_two_drivers_and_checkpoints()
    yield from _cells_of_brokers()
    for protocol in ("older", "newer"):
        yield from _cells_of_kafka(protocol)
    yield Cell(
        "bounded on Kafka, two-phase: driver killed after decide",
        partial(driver_killed, site="decide", when="after", kafka="two-phase"),
    )
    for each in ("older", "newer", "two-phase"):
        yield Cell(f"bounded on Kafka, {each}: too late", partial(bounded_too_late, protocol=each))
    yield Cell("bounded: too late", partial(bounded_too_late, protocol=None))
    yield Cell(
        "bounded on Kafka, 3.9: driver killed after decide",
        partial(driver_killed, site="decide", when="after", kafka="3.9"),
    )
    yield Cell(
        "bounded on Kafka, 3.9: task: raise after task",
        partial(task_fails, site="task", when="after", action="raise", kafka="3.9"),
    )
    yield Cell(
        "bounded on Kafka, 3.9: asleep until too late", partial(bounded_asleep, protocol="3.9")
    )
    yield from _cells_of_connect()
    for site, when in (("decide", "before"), ("decide", "after"), ("commit", "after")):
        play = partial(declarative_killed, site=site, when=when)
        yield Cell(f"declarative: killed {when} {site}", play)
    yield Cell(
        "declarative: commit raises after decide", partial(declarative_retried, site="decide")
    )
    yield Cell("declarative: full refresh", declarative_refreshed)
    yield Cell("spark-submit: executor killed", submitted_executor_killed)
    yield Cell("spark-submit: driver killed", submitted_driver_killed)
    yield Cell("soak", soak)


def _cells_of_connect() -> Iterator[Cell]:
    for for_each in (False, True):
        of = "Connect, foreachBatch" if for_each else "Connect"
        for site, when in (("write_decision", "after"), ("decide", "after")):
            play = partial(client_killed, site=site, when=when, for_each=for_each)
            yield Cell(f"{of}: client killed {when} {site}", play)
        play = partial(client_replaced, site="decide", for_each=for_each)
        yield Cell(f"{of}: client replaced before decide", play)
        for site, when in (("decide", "before"), ("decide", "after"), ("commit", "after")):
            play = partial(server_killed, site=site, when=when, for_each=for_each)
            yield Cell(f"{of}: server killed {when} {site}", play)


def _cells_of_drivers() -> Iterator[Cell]:
    for site in ("commit", *STEPS, "carry out", CLEAN):
        for when in ("before", "after"):
            play = partial(driver_killed, site=site, when=when)
            yield Cell(f"driver killed {when} {_word(site)}", play)
            play = partial(driver_killed, site=site, when=when, topics=3)
            yield Cell(f"three topics: driver killed {when} {_word(site)}", play)
    for site in ("commit", "write_decision", "decide", "carry out"):
        for when in ("before", "after"):
            play = partial(driver_killed, site=site, when=when, is_join=True)
            yield Cell(f"join: driver killed {when} {site}", play)
    for site, when in (("decide", "before"), ("decide", "after"), ("commit", "after")):
        play = partial(driver_killed, site=site, when=when, counts=True)
        yield Cell(f"transformWithState: driver killed {when} {site}", play)
        play = partial(driver_killed, site=site, when=when, for_each=True)
        yield Cell(f"foreachBatch: driver killed {when} {site}", play)
    for site in ("list_open", "fence", "write_decision", "last_decision", "drop decision", CLEAN):
        play = partial(killed_in_abort, site=site)
        yield Cell(f"driver killed in abort after {_word(site)}", play)
    for site in ("write_decision", "decide"):
        play = partial(driver_killed, site=site, when="after", tasks=5)
        yield Cell(f"other tasks on replay after {site}", play)
    play = partial(driver_killed, site="decide", when="after", tasks=5, topics=3)
    yield Cell("three topics: other tasks on replay after decide", play)
    for site in ("pin", "decide"):
        yield Cell(f"commit raises after {site}", partial(step_fails, site=site, when="after"))
    for site in ("pin", "write_decision", "decide", "carry out"):
        play = partial(step_fails, site=site, when="after", action="lose answer")
        yield Cell(f"answer of {site} lost", play)


def _cells_of_tasks() -> Iterator[Cell]:
    for action in ("raise", "exit"):
        for site, when in (("task", "before"), ("rows", "after"), ("task", "after")):
            play = partial(task_fails, site=site, when=when, action=action)
            yield Cell(f"task: {action} {when} {site}", play)
    for when in ("while", "after"):
        yield Cell(f"executor killed {when} a task writes", partial(executor_killed, when=when))
    for site in ("rows", "task"):
        yield Cell(f"speculation, loser slow after {site}", partial(speculation, site=site))
    yield Cell("speculation, loser begins after list_open", late_loser)
    yield Cell("query stopped in mid-batch", stopped_query)


def _cells_of_two_drivers_and_checkpoints() -> Iterator[Cell]:
    for ahead in (1, 2):
        for site in (*STEPS, "carry out", CLEAN):
            play = partial(sleeper, site=site, when="before", ahead=ahead)
            yield Cell(f"driver sleeps before {_word(site)}, {ahead} batches decided", play)
    yield Cell("two drivers at once", two_at_once)
    yield Cell("sinkId shared", shared_sink)
    yield Cell("checkpoint deleted", checkpoint_deleted)
    yield Cell("checkpoint copied back", checkpoint_copied_back)
    yield Cell("checkpoint moved", checkpoint_moved)


def _cells_of_brokers() -> Iterator[Cell]:
    for site in (*STEPS, "carry out", CLEAN):
        for strike, word in (
            (kill_coordinator, "coordinator killed"),
            (kill_leader, "leader of decisions killed"),
            (move_coordinators, "coordinators moved"),
            (move_leaders, "leaders moved"),
            (cut_off_leader, "leader of decisions deposed"),
        ):
            play = partial(while_waiting, site=site, when="before", strike=strike)
            yield Cell(f"{word} before {_word(site)}", play)
    for strike, word in (
        (partial(kill_leader, of_output=True), "leader of output killed"),
        (partial(cut_off_leader, of_output=True), "leader of output deposed"),
        (move_coordinators, "coordinators moved"),
        (move_leaders, "leaders moved"),
    ):
        play = partial(while_waiting, site="rows", when="after", strike=strike)
        yield Cell(f"{word} while a task writes", play)
    for site in ("pin", "decide", "carry out"):
        play = partial(while_waiting, site=site, when="before", strike=times_out)
        yield Cell(f"timeout before {site}", play)
        play = partial(restarted_after_timeout, site=site, when="before")
        yield Cell(f"restart after the timeout, killed before {site}", play)
    play = partial(while_waiting, site="commit", when="before", strike=output_grown)
    yield Cell("output grown", play)


def _cells_of_kafka(protocol: str) -> Iterator[Cell]:
    """Return the cells of delivery exactly-once-bounded on Apache Kafka."""
    of = f"bounded on Kafka, {protocol}"
    for site in ("list_open", "fence", "describe", *STEPS[3:], "carry out"):
        play = partial(driver_killed, site=site, when="after", kafka=protocol)
        yield Cell(f"{of}: driver killed after {site}", play)
    for action in ("raise", "exit"):
        play = partial(task_fails, site="task", when="after", action=action, kafka=protocol)
        yield Cell(f"{of}: task: {action} after task", play)
    play = partial(step_fails, site="decide", when="after", kafka=protocol)
    yield Cell(f"{of}: commit raises after decide", play)
    play = partial(play, action="lose answer")
    yield Cell(f"{of}: answer of decide lost", play)
    play = partial(sleeper, site="decide", when="before", ahead=1, kafka=protocol)
    yield Cell(f"{of}: driver sleeps before decide, 1 batches decided", play)
    yield Cell(f"{of}: asleep until too late", partial(bounded_asleep, protocol=protocol))


def _word(site: str) -> str:
    return "clean" if site == CLEAN else site


CELLS: Final = tuple(_cells())

QUICK: Final = (
    "answer of decide lost",
    "task: exit after task",
    "sinkId shared",
    "checkpoint copied back",
    "coordinators moved before decide",
    "three topics: other tasks on replay after decide",
    "join: driver killed before decide",
)
"""The cells of every test run: each kind of fault once, and both sides of the decision."""


def named(names: Iterable[str]) -> list[Cell]:
    """Return cells in the order of their names here."""
    by_name = {cell.name: cell for cell in CELLS}
    return [by_name[name] for name in names]
