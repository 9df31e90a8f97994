"""One broker compared with several processes on one host: the part `processes` of `beside_kafka`.

There are as many clients as processes, each with a partition of its own: of the one broker, or one
of each process. They send small Produce requests. Then eight producers commit transactions of one
record.
"""

import multiprocessing
import time
from collections.abc import Callable
from functools import partial
from itertools import count, repeat

from benchmarks import raw, requests
from benchmarks.systems import Barnabas, Processes, System, cpu_seconds

WINDOW = 16
RECORDS, RECORD_BYTES = 10, 100

Figures = dict[str, float]
Round = dict[str, Figures]


def produce_name(clients: int) -> str:
    """Return the name of the measurement of Produce requests by so many clients."""
    return f"Produce of 10 records, {clients} clients"


def transactions_name(processes: int) -> str:
    """Return the name of the measurement of transactions beside so many processes."""
    return f"transactions of one record, beside {processes} processes"


def produce(system: System, clients: int, amount: int) -> Round:
    """Measure small Produce requests of several clients, `amount` of each."""
    placed = _placed(system, clients)
    sending = [multiprocessing.Process(target=_send, args=(*each, amount)) for each in placed]
    before, began = cpu_seconds(system.pid), time.perf_counter()
    for each in sending:
        each.start()
    for each in sending:
        each.join()
        if each.exitcode:
            raise RuntimeError(f"a client of {system.name} failed")
    seconds, cpu = time.perf_counter() - began, cpu_seconds(system.pid) - before
    with raw.connect(system.port) as client:
        for _, topic in placed:
            raw.delete_topic(client, topic)
    total = clients * amount
    figures = {"cpu_us": cpu / total * 1e6, "per_s": total / seconds, "cores": cpu / seconds}
    return {produce_name(clients): figures}


def transactions(system: System, processes: int, amount: int) -> Round:
    """Measure transactions by eight producers."""
    (figures,) = requests.transactions(system, 8, amount).values()
    return {transactions_name(processes): figures}


def loads(processes: int, amount: int, transacted: int) -> list[Callable[[System], Round]]:
    """Return the loads of one round."""
    return [
        partial(produce, clients=processes, amount=amount),
        partial(transactions, processes=processes, amount=transacted),
    ]


def _send(port: int, topic: str, amount: int) -> None:
    request = raw.produce_request(topic, records=RECORDS, record_bytes=RECORD_BYTES)
    with raw.connect(port) as client:
        client.stream(repeat(request, amount), WINDOW)


def _placed(system: System, clients: int) -> list[tuple[int, str]]:
    """Return ports and topics for the clients, with the same number on each process."""
    assert isinstance(system, Barnabas | Processes)
    led: dict[int, list[str]] = {port: [] for port in system.ports}
    each = clients // len(led)
    spare: list[str] = []
    with raw.connect(system.port) as client:
        for number in count():
            topic = f"clients-{time.time_ns()}-{number}"
            raw.create_topic(client, topic)
            topics = led[raw.leader_port(client, topic)]
            (topics if len(topics) < each else spare).append(topic)
            if all(len(topics) == each for topics in led.values()):
                break
        for topic in spare:
            raw.delete_topic(client, topic)
    return [(port, topic) for port, topics in led.items() for topic in topics]
