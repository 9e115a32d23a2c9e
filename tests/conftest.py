"""Settings that every test runs under."""

import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# The suite asserts in modules that are not test files; rewriting makes their failures as telling.
pytest.register_assert_rewrite("pico_conformance")

# A verdict must not depend on how busy the machine is: no deadline, no check of how long inputs
# take to make.
_UNTIMED = (HealthCheck.too_slow,)

# The same examples on every run, and none remembered from another one.
settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=_UNTIMED,
)
settings.register_profile(
    "dev",
    deadline=None,
    print_blob=True,
    suppress_health_check=_UNTIMED,
)
# `--hypothesis-profile` is read later and wins.
settings.load_profile("dev")

# A shell that runs something in the background lets it ignore Ctrl-C, and so would every process
# that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let what a test printed and logged be sent between processes, whatever characters it has."""
    report = yield
    report.sections = [
        (title, text.encode(errors="backslashreplace").decode()) for title, text in report.sections
    ]
    return report
