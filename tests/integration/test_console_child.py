"""`serve --console` and `cluster up --console`: a console that ends with the brokers."""

import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.support.command_line import environment, niceness
from tests.support.waiting import until


def started(*words: str, data: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "barnabas", *words, "-l", "127.0.0.1:0", "-d", str(data)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def address_of(process: "subprocess.Popen[str]") -> str:
    """Return the address that the console prints."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"console:\s+(http://\S+)", line):
            return found[1]
    raise AssertionError("no console")


def serves(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return b"Overview" in answer.read()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


@pytest.mark.parametrize(
    ("words", "brokers"), [(("serve",), 1), (("cluster", "up", "-n", "2"), 2)], ids=["one", "two"]
)
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=str)
def test_console_ends_with_the_brokers(
    words: tuple[str, ...], brokers: int, end: signal.Signals, tmp_path: Path
) -> None:
    with started(*words, "--console", "127.0.0.1:0", data=tmp_path) as process:
        address = address_of(process)
        with urllib.request.urlopen(address, timeout=20) as answer:
            page = answer.read().decode()
        assert re.search(rf"<dt>Brokers</dt><dd><a [^>]*>{brokers}<", page)
        with urllib.request.urlopen(f"{address}timeline", timeout=20) as answer:
            timeline = answer.read().decode()
        assert timeline.count("broker started: ") == brokers
        assert "are missing" not in timeline
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        nicer = [each for each in children if niceness(int(each)) > niceness(process.pid)]
        assert len(nicer) == 1
        process.send_signal(end)
        until(lambda: not serves(address))
        process.communicate(timeout=60)
        assert process.returncode == (0 if end is signal.SIGTERM else -end)


def test_address_in_use_does_not_stop_the_broker(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with started("serve", "--console", f"127.0.0.1:{port}", data=tmp_path) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert "Barnabas serves 127.0.0.1" in process.stdout.readline()
            told = next(line for line in process.stderr if line.startswith("console: "))
            assert "in use" in told
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
            assert process.returncode == 0


def test_console_beside_users_has_logins(tmp_path: Path) -> None:
    with started("serve", "--secure", "--console", "127.0.0.1:0", data=tmp_path) as process:
        address = address_of(process).rstrip("/")
        with urllib.request.urlopen(address, timeout=20) as answer:
            assert answer.url == f"{address}/login?next=%2F"
        password = (tmp_path / "secure" / "admin.password").read_text()
        form = urlencode({"user": "admin", "password": password}).encode()
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(f"{address}/login", form, timeout=20) as answer:
            assert re.search(r"<dt>Brokers</dt><dd><a [^>]*>1<", answer.read().decode())
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def test_console_with_logins_is_refused_where_passwords_would_be_seen(tmp_path: Path) -> None:
    with started("serve", "--secure", "--console", "0.0.0.0:0", data=tmp_path) as process:
        assert process.stderr is not None
        told = next(line for line in process.stderr if line.startswith("console: "))
        assert "without TLS would show passwords" in told
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def test_broker_imports_nothing_of_the_console() -> None:
    program = """
import sys
from barnabas.cli.commands import cluster, serve
import barnabas.broker.app, barnabas.cli.processes.broker, barnabas.cli.processes.supervisor
print([each for each in sys.modules if each.split(".")[0] in ("starlette", "uvicorn", "jinja2")
       or each.startswith("barnabas.console")])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment()
    )
    assert done.stdout == "[]\n", done.stderr


FAMILY = ("starlette", "uvicorn", "jinja2", "markupsafe", "anyio", "h11")
HIDE = f"""
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("barnabas.console") or name.partition(".")[0] in {FAMILY}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hidden())
"""


def imported(tmp_path: Path, name: str, customized: str) -> list[str]:
    """Return the modules that `serve` imports until it serves, in order."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "sitecustomize.py").write_text(customized)
    where = environment()
    where["PYTHONPATH"] = f"{tmp_path / name}:{where['PYTHONPATH']}"
    words = ("serve", "-l", "127.0.0.1:0", "-d", str(tmp_path / name / "data"))
    command = [sys.executable, "-X", "importtime", "-m", "barnabas", *words]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, text=True, env=where, **streams) as process:
        assert process.stdout is not None
        modules = []
        for line in process.stdout:
            if line.startswith("import time:"):
                modules.append(line.rpartition("|")[2].strip())
            elif line.startswith("Barnabas serves "):
                break
        process.kill()
    return modules


def test_start_is_the_same_whether_or_not_there_is_a_console(tmp_path: Path) -> None:
    usual = imported(tmp_path, "usual", "")
    assert "barnabas.broker.app" in usual
    assert usual == imported(tmp_path, "hidden", HIDE)
