"""The compaction process `python -m barnabas.storage.cleaning.cleaner_worker`, and its handle.

Compaction walks over every record, and a busy thread would starve the event loop; a busy process
does not. Jobs and results are one line of JSON each. The worker writes `*.cleaned` files only: if
it dies or is killed, the job is repeated later.
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

from barnabas.protocol.late_import import ReleaseReplaced, require_release
from barnabas.storage.cleaning.compaction_job import (
    CleanedGroup,
    CompactionFailed,
    CompactionJob,
    CompactionResult,
)
from barnabas.storage.files.files import Files, OsFiles
from barnabas.storage.priority import yield_to_brokers

_MODULE = "barnabas.storage.cleaning.cleaner_worker"
_NICENESS = 19


class CleanerProcess:
    """The worker process, started with the first job; one job at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._busy = False

    def clean(self, job: CompactionJob) -> Generator[CleanedGroup | CompactionResult, None, None]:
        """Yield as `compact` does; blocks, so call it in a thread. Raises CompactionFailed.

        Closing the generator within a job ends the process.
        """
        finished = False
        self._busy = True
        try:
            for line in self._ask(job):
                if not line.endswith("\n"):
                    break
                result = _decode_result(line)
                finished = isinstance(result, CompactionResult)
                yield result
                if finished:
                    return
            raise CompactionFailed("the compaction process died during a job", damaged=False)
        except BrokenPipeError:
            raise CompactionFailed(
                "the compaction process died before a job", damaged=False
            ) from None
        finally:
            self._busy = False
            if not finished:
                self.stop()

    def stop(self) -> None:
        """End the process, from any thread; a running job fails in its own thread."""
        process = self._process
        if process is not None:
            process.kill()
            if not self._busy:
                self._process = None
                # Unsent input for the process is dropped.
                with suppress(BrokenPipeError), process:
                    pass

    def _ask(self, job: CompactionJob) -> IO[str]:
        if self._process is None:
            try:
                require_release(_MODULE)
            except ReleaseReplaced as error:
                raise CompactionFailed(str(error), damaged=False) from None
            self._process = subprocess.Popen(
                [sys.executable, "-m", _MODULE],
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
    """The cleaner within this process: for a disk that no other process can see, as in a
    simulation."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def clean(self, job: CompactionJob) -> Generator[CleanedGroup | CompactionResult, None, None]:
        """Yield as `CleanerProcess.clean` does."""
        # Imported late here and below: the broker imports this module and never compacts itself.
        from barnabas.storage.cleaning.compaction import compact

        return compact(self._files, job)

    def stop(self) -> None:
        """Do nothing: a job runs only while its results are requested."""


class Throttle:
    """A limit on the rate of reading and writing, in bytes per second."""

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
    """Let brokers have the cores first, though this process has a session of its own."""
    yield_to_brokers(_NICENESS)
    # Linux's autogroup groups processes by session, and niceness counts within a group only. This
    # process has a separate session: a share as large as the broker's. See sched(7).
    with suppress(OSError), open("/proc/self/autogroup", "w") as autogroup:
        autogroup.write(str(_NICENESS))


def serve(jobs: TextIO, results: TextIO, files: Files, parent: Callable[[], int]) -> None:
    """Run jobs until the input ends; `parent` returns the id of the parent process."""
    from barnabas.storage.cleaning.compaction import compact

    broker = parent()

    def pace(amount: int) -> None:
        # Without its broker the files are useless: the next broker's worker makes its own.
        if parent() != broker:
            raise SystemExit("the broker has ended, so the compaction process ends too")
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


def _decode_result(line: str) -> CleanedGroup | CompactionResult:
    answer = json.loads(line)
    if "error" in answer:
        raise CompactionFailed(answer["error"], damaged=answer["damaged"])
    if "CompactionResult" in answer:
        return CompactionResult(**answer["CompactionResult"])
    group = answer["CleanedGroup"]
    return CleanedGroup(group["base_offset"], tuple(group["replaced"]), group["size"])


if __name__ == "__main__":
    # If the results are not read any more, the worker ends silently.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    give_way()
    serve(sys.stdin, sys.stdout, OsFiles(), os.getppid)
