"""A pico backend that keeps its sessions in an LMDB environment."""

from pico_lmdb.backend import backend as backend
from pico_lmdb.store import LmdbStore as LmdbStore
