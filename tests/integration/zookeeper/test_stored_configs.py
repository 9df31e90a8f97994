"""`barnabas configs --zookeeper` mends brokers that no client can reach, while they run."""

import asyncio
import json
from pathlib import Path

from tests.integration.zookeeper.brokers_in_loop import cluster
from tests.support.command_line import run
from tests.support.waiting import eventually
from tests.support.zookeeper import ZooKeeperServer

OUT = "127.0.0.1:0"
KEY = "max.connections.per.ip.overrides"


async def configs(connect: str, *arguments: str) -> tuple[int, str]:
    done = await asyncio.to_thread(run, "configs", "--zookeeper", connect, *arguments)
    return done.returncode, (done.stdout + done.stderr).decode()


async def test_running_brokers_take_over_what_is_changed_in_zookeeper(
    server: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    connect = server.connect + chroot
    async with cluster(server, chroot, tmp_path) as brokers:

        def limits() -> list[str]:
            return [each._dynamic.current.max_connections_per_ip_overrides for each in brokers]

        assert (await configs(connect, "alter", "broker", "--set", f"{KEY}={OUT}"))[0] == 0
        await eventually(lambda: limits() == [OUT] * 3)
        _, shown = await configs(connect, "describe", "broker", "--json")
        assert json.loads(shown) == [{"key": KEY, "value": OUT, "source": "cluster"}]
        assert (await configs(connect, "alter", "broker", "--delete", KEY))[0] == 0
        await eventually(lambda: limits() == [""] * 3)


async def test_first_user_of_a_cluster_is_followed_by_its_brokers(
    server: ZooKeeperServer, chroot: str, tmp_path: Path
) -> None:
    async def users(*arguments: str) -> str:
        words = ("users", "--zookeeper", server.connect + chroot, *arguments)
        done = await asyncio.to_thread(run, *words, stdin=b"open sesame\n")
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    # Before any broker: the tree of the cluster begins with its user.
    await users("set", "admin", "-m", "SCRAM-SHA-512", "--password-file", "-")
    async with cluster(server, chroot, tmp_path) as brokers:

        def known() -> list[list[str]]:
            return [sorted(each._core.scram_users.names) for each in brokers]

        assert known() == [["admin"]] * 3
        await users("set", "bob", "--password-file", "-")
        await eventually(lambda: known() == [["admin", "bob"]] * 3)
        await users("delete", "admin")
        await eventually(lambda: known() == [["bob"]] * 3)
        assert "admin" not in await users("list")


async def test_options_of_zookeeper_are_read_from_a_file(tmp_path: Path) -> None:
    session = tmp_path / "session.properties"
    session.write_text(f"zookeeper.digest.file={tmp_path}/none\n")
    code, said = await configs("h:1", "--zk-tls-config-file", str(session), "describe", "broker")
    assert code == 1
    assert "zookeeper.digest.file cannot be read" in said
