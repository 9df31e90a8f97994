"""A broker of a test's cluster in a process of its own: commands come in by standard input.

The first line in holds the broker's properties and what is done to it before it starts, and is
answered when it serves. Each other line calls a method of `Node`, and is answered when that is
done. The end of the input stops the broker: it does not outlive the test.
"""

import asyncio
import gc
import json
import os
import sys
from typing import Any

from barnabas.broker.observability.logging import configure
from barnabas.broker.pipes import read_pipe, take_output
from barnabas.testing.node import Node
from barnabas.testing.processes import SERVES
from barnabas.testing.standing import Call


async def main() -> int:
    """Serve until the input ends. The exit code is 1 where the broker failed."""
    loop = asyncio.get_running_loop()
    commands, answers = read_pipe(sys.stdin.fileno()), take_output()
    orders = json.loads(await commands.readline())
    node = Node(orders["properties"])
    obeying, starting = (
        loop.create_task(_obey(node, commands, answers)),
        loop.create_task(node.start(Call(*each) for each in orders["calls"])),
    )
    await asyncio.wait((obeying, starting), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        # The test has gone while this broker waited for the others.
        starting.cancel()
        await asyncio.wait((starting,))
        return 1
    await starting
    _say(answers, {"id": SERVES, "is": None})
    gc.freeze()
    gc.enable()
    ends = [obeying, loop.create_task(node.failed())]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    failed = ends[1].done()
    for end in ends:
        end.cancel()
    await node.stop()
    return int(failed)


async def _obey(node: Node, commands: asyncio.StreamReader, answers: int) -> None:
    """Calls run side by side: one may wait for what another lets go."""
    calls: set[asyncio.Task[None]] = set()
    while line := await commands.readline():
        call = asyncio.create_task(_call(node, answers, **json.loads(line)))
        calls.add(call)
        call.add_done_callback(calls.discard)
    for call in calls:
        call.cancel()


async def _call(
    node: Node, answers: int, *, id: int, method: str, arguments: dict[str, Any]
) -> None:
    try:
        answer = {"id": id, "is": await getattr(node, method)(**arguments)}
    except Exception as error:
        answer = {"id": id, "error": repr(error)}
    _say(answers, answer)


def _say(answers: int, message: dict[str, Any]) -> None:
    os.write(answers, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    import uvloop

    gc.disable()
    configure(level="info")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main()))
