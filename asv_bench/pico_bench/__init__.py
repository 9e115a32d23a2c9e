"""Workloads for pico backends, how they are measured, and the report about them."""
