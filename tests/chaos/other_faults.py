"""Faults of ZooKeeper, of clocks, of what is said between brokers, and of disks."""

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tests.chaos.cluster import HEALED_WITHIN_S, ChaosCluster
from tests.chaos.evidence import FOLLOWER, Evidence, who
from tests.chaos.process_faults import leads_nothing

_SLOW_FOR_S = 10.0


@contextmanager
def expired(cluster: ChaosCluster, told: Evidence, role: str) -> Iterator[None]:
    """A broker's session is over, and the broker does not know."""
    node = who(cluster, told, role)
    told.strikes(node)
    before = cluster.registered()[node]
    cluster.expire(node)
    yield
    cluster.until(lambda: cluster.registered().get(node, before) != before, HEALED_WITHIN_S, str)
    epoch, session = cluster.registered()[node]
    told.saw(epoch > before[0], f"broker {node} has another broker epoch")
    told.saw(session != before[1], f"the session of broker {node} is another")


@contextmanager
def zookeeper_killed(cluster: ChaosCluster, told: Evidence, away_s: float) -> Iterator[None]:
    cluster.zookeeper.kill()
    told.saw(cluster.zookeeper.ask("isro") == "", "ZooKeeper does not answer")
    time.sleep(away_s)
    cluster.zookeeper.start()
    yield


@contextmanager
def zookeeper_paused(cluster: ChaosCluster, told: Evidence, seconds: float) -> Iterator[None]:
    cluster.zookeeper.pause()
    told.saw(True, "every thread of ZooKeeper stood still")
    time.sleep(seconds)
    cluster.zookeeper.resume()
    yield


@contextmanager
def clock_jump(
    cluster: ChaosCluster, told: Evidence, nodes: Sequence[int], *jumps: float
) -> Iterator[None]:
    """Wall clocks go to so many seconds from the truth, one after the other, and back."""
    told.strikes(*nodes)
    before = cluster.registered()
    clocks = [cluster.clocks[node] for node in nodes]
    counts = [clock.told() for clock in clocks]
    for jump in jumps:
        for clock in clocks:
            clock.move(jump)
        time.sleep(8.0 / len(jumps))
    for node, clock, count in zip(nodes, clocks, counts, strict=True):
        wrong = clock.told() - count
        told.saw(wrong > 0, f"broker {node} was told a wrong time {wrong} times")
        clock.move(0)
    assert cluster.registered() == before, "a wall clock that jumps ends no session"
    yield


@contextmanager
def held(
    cluster: ChaosCluster,
    told: Evidence,
    api: int,
    between: bool,
    every: int,
    after_kill: bool = False,
) -> Iterator[None]:
    """Requests of an API arrive later than those who sent them wait, of clients or `between`; some
    are sent only after a kill."""
    proxies = [pair[between] for pair in cluster.proxies.values()]
    before = sum(proxy.held for proxy in proxies)
    for proxy in proxies:
        proxy.hold(api, every=every, seconds=12.0)
    if after_kill:
        broker = cluster.brokers[who(cluster, told, FOLLOWER)]
        broker.kill()
        broker.launch()
    cluster.until(
        lambda: sum(proxy.held for proxy in proxies) > before,
        HEALED_WITHIN_S,
        lambda: f"no client sends requests of API {api}",
    )
    time.sleep(14.0)
    for proxy in proxies:
        proxy.let_go()
    count = sum(proxy.held for proxy in proxies) - before
    told.saw(count > 0, f"{count} requests of API {api} were held")
    told.faults = count
    cluster.until(
        lambda: all(proxy.held == proxy.released for proxy in proxies),
        HEALED_WITHIN_S,
        lambda: "a request is still held",
    )
    yield


@contextmanager
def disk_full(cluster: ChaosCluster, told: Evidence, role: str) -> Iterator[None]:
    """Not a byte is left on a broker's disk, until others lead what it led."""
    node = who(cluster, told, role)
    told.strikes(node)
    directory = cluster.brokers[node].directory
    ballast = directory / "ballast"
    try:
        with ballast.open("wb") as file:
            while True:
                file.write(bytes(1 << 20))
                file.flush()
    except OSError as error:
        told.saw(shutil.disk_usage(directory).free < 4096, str(error))
    code = cluster.brokers[node].wait_until_ended(HEALED_WITHIN_S)
    told.saw(code != 0, f"broker {node} gave up, with {code}")
    leads_nothing(cluster, node)
    yield
    ballast.unlink()
    cluster.brokers[node].launch()


@contextmanager
def late(cluster: ChaosCluster, told: Evidence, least: float, most: float) -> Iterator[None]:
    """All that is asked of brokers, by clients and each other, is so many seconds on its way."""
    proxies = [proxy for pair in cluster.proxies.values() for proxy in pair]
    before = sum(proxy.delayed for proxy in proxies)
    for proxy in proxies:
        proxy.delay(least, most)
    time.sleep(_SLOW_FOR_S)
    for proxy in proxies:
        proxy.delay(0, 0)
    count = sum(proxy.delayed for proxy in proxies) - before
    told.saw(count > 0, f"{count} requests came late")
    yield


@contextmanager
def failing_fsync(cluster: ChaosCluster, told: Evidence, role: str) -> Iterator[None]:
    """Every fsync of a broker fails that flushes before it acknowledges."""
    node = _flushing(cluster, told, role)
    broker = cluster.brokers[node]
    with _every_fsync(cluster, node, "error=EIO") as struck:
        code = broker.wait_until_ended(HEALED_WITHIN_S)
    failed = struck("(INJECTED)")
    told.saw(failed > 0, f"{failed} calls of fsync failed")
    told.saw(code != 0, f"broker {node} gave up, with {code}")
    leads_nothing(cluster, node)
    yield
    broker.launch()


@contextmanager
def slow_fsync(cluster: ChaosCluster, told: Evidence, role: str, seconds: float) -> Iterator[None]:
    """Every fsync of a broker takes so long that flushes before it acknowledges."""
    node = _flushing(cluster, told, role)
    broker, before = cluster.brokers[node], cluster.registered()
    with _every_fsync(cluster, node, f"delay_exit={int(seconds * 1e6)}") as struck:
        time.sleep(_SLOW_FOR_S)
    slow = struck("(DELAYED)")
    told.saw(slow > 0, f"{slow} calls of fsync took {seconds:g} s more")
    assert cluster.registered() == before, "a slow disk ends no session"
    yield
    broker.terminate()
    broker.launch()


def _flushing(cluster: ChaosCluster, told: Evidence, role: str) -> int:
    """Return the broker with the role, which from now on flushes before it acknowledges."""
    node = who(cluster, told, role)
    broker = cluster.brokers[node]
    broker.terminate()
    broker.launch(log_flush_interval_messages="1")
    cluster.wait_until_full()
    cluster.prefer_leaders()
    told.strikes(node)
    return node


@contextmanager
def _every_fsync(cluster: ChaosCluster, node: int, what: str) -> Iterator[Callable[[str], int]]:
    """Something happens to each. Then: how often strace said a word."""
    broker = cluster.brokers[node]
    said = broker.directory.parent / f"strace-{node}"
    calls = "fsync,fdatasync"
    words = ["strace", "-f", "-p", str(broker.pid), "-o", str(said), "-e", f"trace={calls}"]
    tracer = subprocess.Popen([*words, "-e", f"inject={calls}:{what}"], stderr=subprocess.DEVNULL)
    try:
        yield lambda word: said.read_text().count(word)
    finally:
        tracer.send_signal(signal.SIGTERM)
        tracer.wait()
