"""A complete broker on virtual time, with its disk and network in memory."""

from random import Random

from barnabas.broker.app import Broker
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.platform import Platform
from barnabas.config.broker import BrokerConfig
from barnabas.storage.cleaning.cleaner_worker import InlineCleaner
from tests.support.mem_files import MemFiles
from tests.support.virtual_loop import MemoryNetwork, VirtualClock, VirtualLoop


def broker_on(loop: VirtualLoop, seed: int, files: MemFiles, **keys: str) -> Broker:
    properties = {
        "listeners": "PLAINTEXT://sim:9092",
        "log.dirs": "/data",
        "offsets.topic.num.partitions": "3",
        **{key.replace("_", "."): value for key, value in keys.items()},
    }
    platform = Platform(
        files=files,
        clock=VirtualClock(loop),
        random=Random(seed),
        network=MemoryNetwork(loop),
        offload=InlineOffload(),
        cleaner=InlineCleaner(files),
        hostname="sim",
        boot_id="boot",
        working_directory="/",
    )
    return Broker(BrokerConfig.from_properties(properties), platform=platform)
