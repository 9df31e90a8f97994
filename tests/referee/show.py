"""Prints what Apache Kafka answers: `python -m tests.referee.show 'Fetch/*' [HOST:PORT]`.

For authors of scenarios; a second argument asks that broker instead of starting Kafka.
"""

import sys
import tempfile
import traceback
from fnmatch import fnmatchcase
from pathlib import Path

from tests.referee.brokers import SHARED, Address, warm_up
from tests.referee.kafka import FEATURES_OFF, Kafka
from tests.referee.normalise import normalised
from tests.referee.scenario import Peer
from tests.referee.scenarios import every_scenario


def show(broker: Address, pattern: str) -> None:
    """Plays the scenarios whose title and version match, and prints their transcripts."""
    warm_up(broker)
    for scenario in every_scenario():
        if not fnmatchcase(str(scenario), pattern):
            continue
        print(f"\n{scenario}", flush=True)
        with Peer(*broker, scenario.api, scenario.version, scenario.slug) as peer:
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
        with (
            tempfile.TemporaryDirectory() as directory,
            Kafka(Path(directory), features=FEATURES_OFF, properties=SHARED) as kafka,
        ):
            show(Address("127.0.0.1", kafka.port), sys.argv[1])
