"""A client library as a program that prints what it has done to standard output.

    python -m tests.integration.transactions.program transform LIBRARY SERVERS RECORDS ROUTE
    python -m tests.integration.transactions.program read LIBRARY SERVERS PARTITIONS ROUTE

With two more arguments, a name and a protocol, it is one of several members in a group. It leaves
the group on SIGTERM.
A reader prints each record as "partition value", and ends after the last of each partition.
"""

import importlib
import signal
import sys

from tests.integration.transactions.transformer import Route, Transformer, insist

LAST = b"the last"
"""The last record of each partition of the output."""


def main() -> None:
    what, library, servers, number, *route_words = sys.argv[1:]
    route = Route.named(*route_words)
    module = importlib.import_module(f"tests.integration.transactions.with_{library}")
    if what == "transform":
        worker = insist(lambda: module.Worker(servers, route))
        transformer = Transformer(worker, int(number))
        signal.signal(signal.SIGTERM, lambda *_: transformer.stop())
        transformer.run()
        return
    open_partitions = set(range(int(number)))
    for partition, value in module.read(servers, route.output, int(number)):
        if value == LAST:
            open_partitions.discard(partition)
        else:
            print(partition, value.decode())
        if not open_partitions:
            return


if __name__ == "__main__":
    main()
