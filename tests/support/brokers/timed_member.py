"""A broker of a cluster that times its event loop: `python -m tests.support.brokers.timed_member`.

    ... DIRECTORY listeners=CLIENTS://...,BROKERS://...     serves until it is killed

It is the controller of a cluster of its own. The file `epochs` has its controller epoch and its
broker epoch, with which another process can send requests as a broker does. See `timed`.
"""

from pathlib import Path

from barnabas.broker.cluster.registration import stored_epochs
from tests.support.brokers.loop_hold import LoopHold
from tests.support.brokers.program import arguments, go_on, run
from tests.support.in_cluster import member, shared_metadata

EPOCHS = "epochs"


async def serve(directory: Path, properties: dict[str, str]) -> None:
    async with (
        shared_metadata(directory / "metadata") as store,
        member(store, directory, **properties) as broker,
    ):
        broker.rule_collector()
        epochs = await stored_epochs(store.session(), 0)
        (directory / EPOCHS).write_text(f"{epochs.controller} {epochs.broker}")
        LoopHold(directory).start()
        await go_on(broker)


def main() -> None:
    run(serve(*arguments()))


if __name__ == "__main__":
    main()
