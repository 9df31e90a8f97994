"""The process that compacts: `python -m barnabas.storage.cleaner_worker`, and its handle.

Compaction walks over every record, and a busy thread would starve the event loop; a busy process
does it no harm. Jobs go in and results come out as one line of JSON each. The worker writes
nothing but files `*.cleaned`: if it dies, or is killed, the job is done again some day.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import IO, TextIO

from barnabas.storage.compaction_job import (
    CleanedGroup,
    Compacted,
    CompactionFailed,
    CompactionJob,
)
from barnabas.storage.files import Files, OsFiles

_NICENESS = 19


class CleanerProcess:
    """The worker, started with the first job; one job at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._busy = False

    def clean(self, job: CompactionJob) -> Generator[CleanedGroup | Compacted, None, None]:
        """Yields as `compact` does; blocks, so it belongs in a thread. Raises CompactionFailed.

        Closing it in the middle of a job ends the process.
        """
        finished = False
        self._busy = True
        try:
            for line in self._ask(job):
                if not line.endswith("\n"):
                    break
                result = _decode_result(line)
                finished = isinstance(result, Compacted)
                yield result
                if finished:
                    return
            raise CompactionFailed("the worker process died", damaged=False)
        except BrokenPipeError:
            raise CompactionFailed("the worker process had died", damaged=False) from None
        finally:
            self._busy = False
            if not finished:
                self.stop()

    def stop(self) -> None:
        """Ends the process, from any thread; a job that runs fails in its own."""
        process = self._process
        if process is not None:
            process.kill()
            if not self._busy:
                self._process = None
                # What was still to be said to the process is of no interest any more.
                with suppress(BrokenPipeError), process:
                    pass

    def _ask(self, job: CompactionJob) -> IO[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "barnabas.storage.cleaner_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                # An interrupt from the terminal is for the broker, which ends this process.
                start_new_session=True,
            )
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None
        assert answers is not None
        questions.write(_encode_job(job))
        questions.flush()
        return answers


class InlineCleaner:
    """Compacts in this process: for a disk that no other process can see, as in a simulation."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def clean(self, job: CompactionJob) -> Generator[CleanedGroup | Compacted, None, None]:
        """As `CleanerProcess.clean`."""
        # Late here and below: a broker imports this file too, and never compacts itself.
        from barnabas.storage.compaction import compact

        return compact(self._files, job)

    def stop(self) -> None:
        """There is nothing to end: a job only runs while it is asked for results."""


class Throttle:
    """Keeps reading and writing to a rate, in bytes per second."""

    def __init__(
        self, rate: float, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._due = clock()

    def __call__(self, amount: int) -> None:
        now = self._clock()
        self._due = max(self._due, now) + amount / self._rate
        if self._due > now:
            self._sleep(self._due - now)


def give_way() -> None:
    """Takes the processor time that others leave, and interrupts nobody when it wakes up.

    Not SCHED_IDLE: a machine that is busy for hours would starve the cleaner and fill its disk.
    """
    os.nice(_NICENESS)
    if hasattr(os, "SCHED_BATCH"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    # Where Linux groups processes by session, niceness counts within a group only, and this
    # process has a session of its own: a share as large as the broker's. See sched(7), autogroup.
    with suppress(OSError), open("/proc/self/autogroup", "w") as autogroup:
        autogroup.write(str(_NICENESS))


def serve(jobs: TextIO, results: TextIO, files: Files, parent: Callable[[], int]) -> None:
    """Answers jobs until there are no more; `parent` tells the id of the parent process."""
    from barnabas.storage.compaction import compact

    broker = parent()

    def pace(amount: int) -> None:
        # Without its broker nobody wants the files, and the next broker's worker makes its own.
        if parent() != broker:
            raise SystemExit("the broker is gone")
        throttle(amount)

    for line in jobs:
        job = _decode_job(line)
        throttle = Throttle(job.bytes_per_second, time.monotonic, time.sleep)
        try:
            for result in compact(files, job, pace=pace):
                _answer(results, {type(result).__name__: result._asdict()})
        except CompactionFailed as error:
            _answer(results, {"error": str(error), "damaged": error.damaged})


def _answer(results: TextIO, answer: dict[str, object]) -> None:
    results.write(json.dumps(answer) + "\n")
    results.flush()


def _encode_job(job: CompactionJob) -> str:
    return json.dumps(job._asdict()) + "\n"


def _decode_job(line: str) -> CompactionJob:
    fields = json.loads(line)
    fields["segments"] = tuple((base, size) for base, size in fields["segments"])
    fields["producers"] = {int(key): offset for key, offset in fields["producers"].items()}
    return CompactionJob(**fields)


def _decode_result(line: str) -> CleanedGroup | Compacted:
    answer = json.loads(line)
    if "error" in answer:
        raise CompactionFailed(answer["error"], damaged=answer["damaged"])
    if "Compacted" in answer:
        return Compacted(**answer["Compacted"])
    group = answer["CleanedGroup"]
    return CleanedGroup(group["base_offset"], tuple(group["replaced"]), group["size"])


if __name__ == "__main__":
    # An answer that nobody waits for any more ends the worker, without a word.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    give_way()
    serve(sys.stdin, sys.stdout, OsFiles(), os.getppid)
