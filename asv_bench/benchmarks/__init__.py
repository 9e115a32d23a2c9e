"""Benchmarks for airspeed velocity: a thin layer over the workloads of `pico_bench`."""
