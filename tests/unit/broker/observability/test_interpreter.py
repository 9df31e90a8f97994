"""The build of the running Python."""

import pytest

from barnabas.broker.observability.interpreter import is_profile_guided

NAME = "_sysconfigdata__linux_x86_64-linux-gnu.py"


@pytest.mark.parametrize("arguments", ["'--enable-shared' '--enable-optimizations'", "''"])
def test_build_is_known_by_its_configure_option(tmp_path, monkeypatch, arguments):
    monkeypatch.setattr("sysconfig.get_scheme_names", lambda: ("posix_prefix",))
    (tmp_path / NAME).write_text(f'build_time_vars = {{"CONFIG_ARGS": "{arguments}"}}')
    assert is_profile_guided(tmp_path) is ("optimizations" in arguments)


def test_debian_builds_with_profiles_without_the_option(tmp_path, monkeypatch):
    monkeypatch.setattr("sysconfig.get_scheme_names", lambda: ("deb_system", "posix_prefix"))
    (tmp_path / NAME).write_text("build_time_vars = {}")
    assert is_profile_guided(tmp_path) is True


def test_build_without_configuration_is_unknown(tmp_path):
    assert is_profile_guided(tmp_path) is None
