"""Deterministic simulation of a session: for the harness, and for kinds of your own."""
