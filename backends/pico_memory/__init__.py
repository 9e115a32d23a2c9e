"""A pico backend that keeps its sessions in the memory of the process."""

from pico_memory.store import MemoryStore as MemoryStore
from pico_memory.store import backend as backend
