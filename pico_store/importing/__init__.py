"""Readers of foreign transcripts: sessions that other coding agents recorded."""

from pico_store.importing.errors import TranscriptError as TranscriptError
from pico_store.importing.formats import read_transcript as read_transcript
from pico_store.importing.load import ImportReport as ImportReport
from pico_store.importing.load import PreparedImport as PreparedImport
from pico_store.importing.load import import_transcript as import_transcript
from pico_store.importing.transcript import Transcript as Transcript
