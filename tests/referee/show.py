"""Print the answers of Apache Kafka: `python -m tests.referee.show 'Fetch/*' [HOST:PORT]`.

For authors of scenarios; a second argument asks that broker instead of starting Kafka.
"""

import sys
import tempfile
import traceback
from fnmatch import fnmatchcase
from pathlib import Path

from tests.referee.brokers import Address, kafka, set_level
from tests.referee.normalise import normalised
from tests.referee.scenarios import every_scenario


def show(broker: Address, pattern: str) -> None:
    """Play the scenarios whose title and version match, and print their transcripts."""
    for scenario in every_scenario():
        if not fnmatchcase(str(scenario), pattern):
            continue
        print(f"\n{scenario}", flush=True)
        set_level(broker, scenario.level)
        with scenario.peer(broker) as peer:
            try:
                scenario.play(peer)
            except Exception:
                traceback.print_exc(file=sys.stdout)
            answers = normalised(peer.transcript)
        for exchange, answer in zip(peer.transcript, answers, strict=True):
            print(f"  {exchange.api.name} v{exchange.version}: {answer}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        host, _, port = sys.argv[2].rpartition(":")
        show(Address(host, int(port)), sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as directory, kafka(Path(directory)) as address:
            show(address, sys.argv[1])
