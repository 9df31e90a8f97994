"""The program of a test cluster's broker in its own process: it reads commands on standard input.

The first line holds the broker's properties and the calls to make before it starts; it is answered
when the broker serves. Each further line calls a method of `Node`, and is answered when the call
has returned. The end of the input stops the broker, so it does not outlive the test.
"""

import asyncio
import gc
import json
import sys

from barnabas.broker.observability.logging import configure
from barnabas.broker.pipes import read_pipe, take_output
from barnabas.faults.active_faults import NodeCall
from barnabas.faults.remote import SERVES, serve_calls, write_answer
from barnabas.testing.node import Node


async def main() -> int:
    """Serve until the input ends. The exit code is 1 if the broker failed."""
    loop = asyncio.get_running_loop()
    commands, answers = read_pipe(sys.stdin.fileno()), take_output()
    setup = json.loads(await commands.readline())
    node = Node(setup["properties"])
    commands_done, starting = (
        loop.create_task(serve_calls(node, commands, answers)),
        loop.create_task(node.start(NodeCall(*each) for each in setup["calls"])),
    )
    await asyncio.wait((commands_done, starting), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        # The test ended while this broker waited for the others.
        starting.cancel()
        await asyncio.wait((starting,))
        return 1
    await starting
    write_answer(answers, {"id": SERVES, "is": None})
    gc.freeze()
    gc.enable()
    ends = [commands_done, loop.create_task(node.failed())]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    failed = ends[1].done()
    for end in ends:
        end.cancel()
    await node.stop()
    return int(failed)


if __name__ == "__main__":
    import uvloop

    gc.disable()
    configure(level="info")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main()))
