"""A pico backend that keeps each session in lines of JSON that anything can read."""

from pico_jsonl.backend import backend as backend
from pico_jsonl.store import JsonlStore as JsonlStore
