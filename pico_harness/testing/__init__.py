"""Deterministic simulation of a session: for the harness, and for kinds of your own."""

from pico_harness.testing.loop import SimulatedLoop as SimulatedLoop
from pico_harness.testing.trial import TrialFailedError as TrialFailedError
from pico_harness.testing.trial import simulate as simulate
