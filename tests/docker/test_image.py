"""The image: its content, and one broker from start to stop."""

import json
from collections.abc import Callable, Iterator

import pytest

from tests.docker.engine import BASE, Engine, wait_for

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("docker"),
]

MEGABYTE = 1 << 20
MOST_OVER_THE_BASE = 90 * MEGABYTE
"""14 MB of ours and 69 MB of packages, bytecode included: cryptography (16), uvloop (14), pygments
(10), lz4 (6) and pydantic (10) are most of it."""


@pytest.fixture(scope="module")
def shell(engine: Engine, image: str) -> Iterator[Callable[[str], str]]:
    """Return a function that runs a shell command in a container of the image without a broker."""
    sleep = ("--entrypoint", "sleep", image, "infinity")
    engine.run("docker", "run", "--detach", "--init", "--name", "shell", *sleep)
    yield lambda line: engine.run("docker", "exec", "shell", "sh", "-c", line).strip()
    engine.run("docker", "rm", "--force", "--volumes", "shell")


@pytest.fixture
def broker(engine: Engine, image: str) -> Iterator[str]:
    """Run a broker that may write to its volume only; yield the healthy container."""
    engine.run("docker", "run", "--detach", "--name", "alone", "--read-only", image)
    engine.wait_until_healthy(["alone"], 60)
    yield "alone"
    engine.run("docker", "rm", "--force", "--volumes", "alone")


def test_is_small(engine, image):
    over = int(engine.inspect(image, "{{.Size}}")) - int(engine.inspect(BASE, "{{.Size}}"))
    assert over < MOST_OVER_THE_BASE


def test_runs_as_an_ordinary_user(shell):
    assert shell("id -u; id -g; id -un").split() == ["1000", "1000", "barnabas"]


def test_has_no_tools_to_build_with_and_no_tests(shell):
    assert shell("command -v gcc cc make git || echo none") == "none"
    assert shell("ls /opt; ls /opt/barnabas/bin | grep -c pip || true").split() == ["barnabas", "0"]
    packages = "/opt/barnabas/lib/python3.11/site-packages"
    assert shell(f"find {packages}/barnabas -name 'test*' -not -name testing*") == ""
    assert shell("ls -d /src 2>&1 || true").endswith("No such file or directory")


def test_user_can_write_to_its_two_directories_only(shell):
    # The pseudo file system of processes also lists the processes of this command.
    found = shell(
        "find / -user barnabas -not -path '/proc*' -not -path '/dev*' 2>/dev/null || true"
    )
    assert sorted(found.split()) == ["/var/lib/barnabas", "/var/lib/barnabas-secure"]
    assert shell("stat -c '%U:%G' /var/lib/barnabas") == "barnabas:barnabas"


def test_image_has_the_barnabas_tools(engine, image):
    assert engine.run("docker", "run", "--rm", image, "--version").startswith("barnabas")


def test_an_init_process_runs_the_broker(engine, broker):
    table = engine.run("docker", "top", broker, "-o", "pid,uid,args").splitlines()[1:]
    (_, of_init, *init), (_, of_broker, *_) = (line.split() for line in table)
    assert (of_init, of_broker) == ("1000", "1000")
    assert init == ["tini", "--", "barnabas", "serve"]


def test_records_survive_a_new_container_of_another_id(engine, image, broker):
    tool = ("docker", "exec", "--interactive", broker, "barnabas")
    engine.run(*tool, "produce", "greetings", text="hello\n")
    engine.run("docker", "stop", broker)
    engine.run("docker", "run", "--detach", "--name", "next", "--volumes-from", broker, image)
    try:
        engine.wait_until_healthy(["next"], 60)
        read = ("barnabas", "consume", "greetings", "--from", "beginning", "--exit")
        assert engine.run("docker", "exec", "next", *read) == "hello\n"
    finally:
        engine.run("docker", "rm", "--force", "next")


def test_sigterm_is_a_controlled_stop(engine, broker):
    engine.run("docker", "stop", broker)
    assert engine.inspect(broker, "{{.State.ExitCode}}") == "0"
    logged = engine.run("sh", "-c", f"docker logs {broker} 2>&1")
    assert '"event": "broker stopped"' in logged
    engine.run("docker", "cp", f"{broker}:/var/lib/barnabas/.kafka_cleanshutdown", "-")


def test_a_broker_that_hangs_is_unhealthy(engine, broker):
    pid = int(engine.inspect(broker, "{{.State.Pid}}"))
    (child,) = engine.run("pgrep", "--parent", str(pid)).split()
    engine.run("kill", "-STOP", child)
    wait_for("unhealthy", 90, lambda: engine.health(broker) == "unhealthy")
    engine.run("kill", "-CONT", child)
    engine.wait_until_healthy([broker], 60)


def test_the_environment_wins_over_the_image(engine, image):
    variable = "KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://elsewhere:9999"
    engine.run("docker", "run", "--detach", "--name", "named", "--env", variable, image)
    try:
        engine.wait_until_healthy(["named"], 60)
        assert "serves elsewhere:9999" in engine.run("docker", "logs", "named")
    finally:
        engine.run("docker", "rm", "--force", "--volumes", "named")


def test_image_has_its_labels(engine, image):
    labels = json.loads(engine.inspect(image, "{{json .Config.Labels}}"))
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
