"""Handlers are imported after the start of a broker, and never from another release."""

import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import barnabas
from barnabas.protocol.late_import import ReleaseReplaced, import_late
from tests.support.command_line import ROOT, environment

HOLD_MS = 5.0
BEGIN = """
    import itertools, re, socket, sys, time
    from pathlib import Path
    import barnabas
    from barnabas.broker import app
    from barnabas.broker.routes import API_TABLE
    from barnabas.protocol.header import encode_request_header
    from barnabas.protocol.late_import import ReleaseReplaced
    from barnabas.protocol.messages import list_groups  # that the client here sends
    from barnabas.testing import Broker

    def late():
        return [row for row in API_TABLE
                if f"barnabas.broker.handlers.{row.name}" not in sys.modules]

    def upgrade():
        file = Path(barnabas.__file__)
        file.write_text(re.sub('__version__ = ".*"', '__version__ = "99.0.0"', file.read_text()))
        # Modules of the other release would end the process.
        for row in API_TABLE:
            (file.parent / "broker" / "handlers" / f"{row.name}.py").write_text("raise SystemExit")

    def wait_until(condition):
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.01)

    def ask(broker, key, version, body):
        host, port = broker.bootstrap_servers.split(":")
        with socket.create_connection((host, int(port)), timeout=20) as client:
            frame = encode_request_header(key, version, 1, "test") + body
            client.sendall(len(frame).to_bytes(4, "big") + frame)
            return client.recv(65536)
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Copy the package, which the test may replace."""
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "barnabas", tmp_path / "barnabas", ignore=without)
    return tmp_path


def run(program: str, installed: Path, **more: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", dedent(BEGIN) + dedent(program)],
        capture_output=True,
        text=True,
        cwd=installed,
        env=environment(PYTHONPATH=str(installed), **more),
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_no_handler_of_another_release_is_imported(installed: Path) -> None:
    found = run(
        """
        upgrade()
        for row in late():
            try:
                row.module
            except ReleaseReplaced as error:
                print(row.name, error)
        assert len(late()) > 40
        """,
        installed,
    )
    assert found.count("restart this process") > 40


def test_broker_of_a_replaced_release_closes_requests_of_other_handlers_only(
    installed: Path,
) -> None:
    found = run(
        """
        app._HANDLERS_AFTER_S = 3600
        with Broker() as broker:
            assert ask(broker, 18, 0, b"")
            assert 16 in [row.key for row in late()]
            upgrade()
            assert ask(broker, 18, 0, b"")
            assert ask(broker, 16, 0, b"") == b""
            assert 16 in [row.key for row in late()]
        """,
        installed,
    )
    assert "restart this process" in found


def test_broker_that_has_run_for_a_moment_serves_every_api_of_its_release(
    installed: Path,
) -> None:
    run(
        """
        app._HANDLERS_AFTER_S = 0.01
        with Broker() as broker:
            wait_until(lambda: not late())
            upgrade()
            assert ask(broker, 16, 0, b"")
        """,
        installed,
    )


def test_broker_says_that_it_cannot_import_its_other_handlers(installed: Path) -> None:
    found = run(
        """
        from unittest.mock import Mock
        app._HANDLERS_AFTER_S = 0.5
        app._log = Mock(wraps=app._log)
        with Broker() as broker:
            upgrade()
            wait_until(lambda: app._log.error.called)
            assert late()
        """,
        installed,
    )
    assert found.count("restart this broker") == 1


def test_no_cleaner_of_another_release_is_started(installed: Path) -> None:
    found = run(
        """
        from barnabas.storage.cleaning.cleaner_worker import CleanerProcess
        from barnabas.storage.cleaning.compaction_job import CompactionFailed
        upgrade()
        try:
            next(CleanerProcess().clean(None))
        except CompactionFailed as error:
            print(error)
        """,
        installed,
    )
    assert "restart this process" in found


def test_state_of_groups_is_imported_when_the_broker_becomes_a_coordinator(
    installed: Path,
) -> None:
    run(
        """
        app._HANDLERS_AFTER_S = 3600
        STATE = "barnabas.coordinator.group.coordinator"
        with Broker() as broker:
            assert ask(broker, 3, 0, bytes(4))
            assert STATE not in sys.modules
            # FindCoordinator v0 of a group creates the topic.
            assert ask(broker, 10, 0, b"\\0\\1g")
            wait_until(lambda: STATE in sys.modules)
        """,
        installed,
    )


def test_import_of_a_handler_holds_the_event_loop_for_less_than_5_ms(installed: Path) -> None:
    """The least of three processes counts: the machine is busy."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", installed / "barnabas"], check=True)
    taken: dict[str, float] = {}
    for _ in range(3):
        found = run(
            """
            import gc
            from barnabas.broker.groups.group_service import import_groups
            gc.disable()
            steps = (f"groups-{number}" for number, _ in enumerate(import_groups()))
            imports = itertools.chain(steps, (row.module and row.name for row in API_TABLE))
            began = time.thread_time()
            for name in imports:
                print(name, (time.thread_time() - began) * 1000)
                began = time.thread_time()
            """,
            installed,
        )
        for name, ms in (line.split() for line in found.splitlines()):
            taken[name] = min(float(ms), taken.get(name, float("inf")))
    assert len(taken) > 50
    assert {name: ms for name, ms in taken.items() if ms >= HOLD_MS} == {}


def test_release_is_known_where_pytest_has_imported_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its loader knows no sources: pytest imports all packages of a distribution with a plugin."""
    monkeypatch.setattr(barnabas.__spec__, "loader", object())
    monkeypatch.delitem(sys.modules, "barnabas.broker.handlers.heartbeat", raising=False)
    assert import_late("barnabas.broker.handlers.heartbeat").handle
    monkeypatch.setattr(barnabas, "__version__", "0.0.1")
    with pytest.raises(ReleaseReplaced):
        import_late("barnabas.broker.handlers.nothing")
