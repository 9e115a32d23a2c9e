"""Deterministic simulation of a session: for the harness, and for kinds of your own."""

from pico_harness.testing.loop import DeadlockError as DeadlockError
from pico_harness.testing.loop import EndlessError as EndlessError
from pico_harness.testing.loop import HaltedError as HaltedError
from pico_harness.testing.loop import SimulatedLoop as SimulatedLoop
from pico_harness.testing.loop import SimulationError as SimulationError
from pico_harness.testing.trial import TrialFailedError as TrialFailedError
from pico_harness.testing.trial import simulate as simulate
