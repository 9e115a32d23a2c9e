"""A pico backend that keeps its sessions in one SQLite file."""

from pico_sqlite.backend import backend as backend
from pico_sqlite.store import SqliteStore as SqliteStore
