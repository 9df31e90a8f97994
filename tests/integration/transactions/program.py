"""A client library as a program that prints what it has done to standard output.

    python -m tests.integration.transactions.program transform LIBRARY SERVERS RECORDS ROUTE
    python -m tests.integration.transactions.program read LIBRARY SERVERS PARTITIONS ROUTE

With one more argument, a name, it is one of several members in a group of the consumer protocol.
A reader prints each record as "partition value", and ends after the last of each partition.
"""

import importlib
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
        Transformer(worker, int(number)).run()
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
