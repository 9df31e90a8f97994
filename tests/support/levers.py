"""Three brokers of `cluster up --faults`, whose levers can be pulled."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.ports import free_port, ports_in_a_row
from tests.support.supervised import running

TOKEN: Final = "pull-them-all-gently"


class BrokersWithLevers(NamedTuple):
    """The addresses of the brokers, and the one of their levers."""

    servers: str
    faults: str


@contextmanager
def brokers_with_levers(directory: Path, *keys: str) -> Iterator[BrokersWithLevers]:
    """Run brokers with an HTTP endpoint each and these keys; they must stop in order."""
    metrics, faults = f"127.0.0.1:{ports_in_a_row(3)}", f"127.0.0.1:{free_port()}"
    sets = [word for key in (f"metrics.listener={metrics}", *keys) for word in ("--set", key)]
    words = ("-l", "127.0.0.1:0", "-d", str(directory / "data"), "--faults", faults, *sets)
    with running("cluster", "up", *words, BARNABAS_FAULTS_TOKEN=TOKEN) as parent:
        yield BrokersWithLevers(parent.serves(), faults)
        parent.process.send_signal(signal.SIGTERM)
        assert parent.ends() == 0
