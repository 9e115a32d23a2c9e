"""A pico backend that keeps its sessions in one SQLite file."""
