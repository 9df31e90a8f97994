"""The pipes from children to a parent."""

import subprocess
import sys
import textwrap

import uvloop

from barnabas.broker.pipes import close_pipe, read_pipe

DEADLINE = 20.0


def child(program: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_lines_arrive_until_the_pipe_ends() -> None:
    async def read(process: "subprocess.Popen[bytes]") -> list[bytes]:
        assert process.stdout is not None
        lines = read_pipe(process.stdout.fileno())
        found = [await lines.readline() for _ in range(3)]
        close_pipe(process.stdout)
        close_pipe(process.stdout)
        return found

    process = child("print('one'); print('two')")
    assert uvloop.run(read(process)) == [b"one\n", b"two\n", b""]
    process.communicate(timeout=DEADLINE)


def test_taken_output_ends_with_its_process_although_a_child_lives() -> None:
    process = child(
        """
        import os, subprocess, sys
        from barnabas.broker.pipes import take_output
        output = take_output()
        print("said to people")
        os.write(output, b"said to the parent")
        sys.stdout.flush()
        subprocess.Popen([sys.executable, "-c", "input()"])
        """
    )
    assert process.stdout is not None
    assert process.stdout.read() == b"said to the parent"
    assert process.wait(DEADLINE) == 0
    _, errors = process.communicate(b"\n", timeout=DEADLINE)
    assert errors == b"said to people\n"
