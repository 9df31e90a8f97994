"""Hosts of their own for brokers: a network namespace each, joined by a switch in another.

What a host's firewall drops, only that host drops: nothing of the machine's own network changes.
"""

import contextlib
import functools
import os
import subprocess
from collections.abc import Sequence

_SUBNET = 10_000 + os.getpid() % 50_000
"""Two runs at a time have two networks."""


def _run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


class Network:
    """Hosts by number; the machine itself is at `gateway`."""

    def __init__(self, hosts: Sequence[int]) -> None:
        self._hosts = tuple(hosts)
        self._name = f"bc{_SUBNET}"
        first, second = divmod(_SUBNET, 256)
        self._prefix = f"10.{first}.{second}"
        self.gateway = f"{self._prefix}.254"

    def address(self, host: int) -> str:
        return f"{self._prefix}.{host}"

    def command(self, host: int) -> list[str]:
        """Return the prefix of a command that is to run on a host."""
        return ["ip", "netns", "exec", self._space(host)]

    def up(self) -> None:
        switch = f"{self._name}-sw"
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "br0", "up")
        self._cable(switch, "gw", self._name, None)
        _run("ip", "addr", "add", f"{self.gateway}/24", "dev", self._name)
        _run("ip", "link", "set", self._name, "up")
        for host in self._hosts:
            space = self._space(host)
            _run("ip", "netns", "add", space)
            self._cable(switch, f"h{host}", "eth0", space)
            _run("ip", "-n", space, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _run("ip", "-n", space, "link", "set", device, "up")

    def down(self) -> None:
        for space in (f"{self._name}-sw", *map(self._space, self._hosts)):
            subprocess.run(["ip", "netns", "del", space], capture_output=True)
        subprocess.run(["ip", "link", "del", self._name], capture_output=True)

    def firewall(self, host: int, chain: str, *rule: str) -> None:
        """One more rule of `iptables`, at the end of a chain."""
        _run(*self.command(host), "iptables", "-A", chain, *rule)

    def stopped(self, host: int) -> int:
        """Packets that the rules of a host have matched since they were set."""
        listing = _run(*self.command(host), "iptables", "-L", "-v", "-n", "-x")
        rows = [line.split() for line in listing.splitlines()]
        return sum(int(row[0]) for row in rows if row and row[0].isdigit())

    def heal(self, host: int) -> None:
        """No rule is left."""
        _run(*self.command(host), "iptables", "-F")

    def narrow(self, host: int, rate: str) -> None:
        """Limit the rate at which a host sends, in the syntax of `tc`."""
        line = ("root", "tbf", "rate", rate, "burst", "32kbit", "latency", "400ms")
        _run(*self.command(host), "tc", "qdisc", "add", "dev", "eth0", *line)

    def widen(self, host: int) -> int:
        """As fast as it can; how often something had to wait."""
        listing = _run(*self.command(host), "tc", "-s", "qdisc", "show", "dev", "eth0")
        _run(*self.command(host), "tc", "qdisc", "del", "dev", "eth0", "root")
        return int(listing.split("overlimits ")[1].split()[0])

    def _cable(self, switch: str, port: str, device: str, space: str | None) -> None:
        end = [
            "peer",
            "name",
            device,
            *(("netns", space) if space else ("netns", str(os.getpid()))),
        ]
        _run("ip", "-n", switch, "link", "add", port, "type", "veth", *end)
        _run("ip", "-n", switch, "link", "set", port, "master", "br0", "up")

    def _space(self, host: int) -> str:
        return f"{self._name}-{host}"


@functools.cache
def why_not() -> str | None:
    """Return the reason why this machine cannot have such networks, None if it can."""
    if os.geteuid():
        return "network namespaces need root"
    probe = Network(())
    try:
        probe.up()
        _run("ip", "netns", "exec", f"{probe._name}-sw", "iptables", "-A", "INPUT", "-j", "DROP")
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces with iptables here: {error}"
    finally:
        with contextlib.suppress(OSError):
            probe.down()
    return None
