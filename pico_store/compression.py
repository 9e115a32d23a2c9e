"""Payloads made smaller by zstandard, with a dictionary trained on a store's own.

A payload is MessagePack, and JSON has no byte strings: one that is a MessagePack byte string is a
compressed one. It holds the number of the dictionary, MessagePack, 0 for none, and a zstandard
frame of the payload.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

import msgspec

from pico_store.errors import MissingDriverError, StoreDamagedError

try:
    import zstandard
except ModuleNotFoundError:  # An extra, which most stores do without.
    zstandard = None  # type: ignore[assignment]

COMPRESSED: Final = frozenset((0xC4, 0xC5, 0xC6))
"""What a compressed payload begins with, and no other."""
LEVEL: Final = 3
"""Of zstandard, for commits."""
LEVEL_ANEW: Final = 9
"""For what is written anew, once."""
_SAMPLES: Final = 4_096
_SAMPLE_BYTES_MAX: Final = 64 << 10
_SMALL: Final = 48
"""Shorter payloads are left alone."""
_GAIN: Final = 8
"""What compressing must gain at least."""
_DICTIONARY_BYTES: Final = (1 << 10, 64 << 10)
_SAMPLES_MIN: Final = 16
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(bytes).decode


def is_compressed(payload: bytes) -> bool:
    """Tell whether a payload is a compressed one."""
    return payload[0] in COMPRESSED


def dictionary_of(payload: bytes) -> int:
    """Return the number of the dictionary that a compressed payload needs; 0: none."""
    return _split(payload)[0]


def train_dictionary(samples: Iterable[bytes]) -> bytes | None:
    """Return a dictionary for payloads like the samples; ``None`` where they are too few.

    A thirty-second of what they weigh, up to 64 KiB: what it holds is paid for once, what it
    saves with every payload.
    """
    kept: list[bytes | bytearray | memoryview] = [
        sample for sample in samples if len(sample) >= _SMALL
    ]
    least, most = _DICTIONARY_BYTES
    size = min(sum(map(len, kept)) // 32, most)
    if len(kept) < _SAMPLES_MIN or size < least:
        return None
    try:
        return zstandard.train_dictionary(size, kept, level=9).as_bytes()
    except zstandard.ZstdError:
        # They have nothing in common.
        return None


def pick_samples(payloads: Iterable[bytes], plain: Callable[[bytes], bytes]) -> list[bytes]:
    """Return the beginnings of some payloads, each as likely as any other, as they were.

    Args:
        payloads: All there are, as they are stored.
        plain: Returns a payload as it was.
    """
    kept: list[bytes] = []
    random = Random(1)
    for seen, payload in enumerate(payloads, 1):
        if len(kept) < _SAMPLES:
            kept.append(plain(payload)[:_SAMPLE_BYTES_MAX])
        elif (place := random.randrange(seen)) < _SAMPLES:
            kept[place] = plain(payload)[:_SAMPLE_BYTES_MAX]
    return kept


class Compression:
    """Compresses with one dictionary, and reads what any of a store's was used for.

    Any number of threads may use one.
    """

    def __init__(self, level: int, number: int = 0, dictionary: bytes | None = None) -> None:
        """Take what new payloads are compressed with.

        Raises:
            MissingDriverError: zstandard is not installed.
        """
        if zstandard is None:
            problem = "compression needs the library 'zstandard', which is not installed; "
            raise MissingDriverError("URL-2", "", problem + "pip install 'pico-store[zstd]'")
        self._level = level
        self.number = number
        """The number of the dictionary; 0: none."""
        self._number = _pack(number)
        self.dictionary = dictionary
        """What payloads are compressed with, if anything."""
        self._known: dict[int, bytes] = {} if dictionary is None else {number: dictionary}
        self._local = threading.local()

    def compressed(self, payload: bytes) -> bytes:
        """Return a payload as it is to be stored: compressed where that pays."""
        if len(payload) < _SMALL:
            return payload
        made = _pack(self._number + self._compressor().compress(payload))
        return made if len(made) + _GAIN <= len(payload) else payload

    def plain(self, payload: bytes, find: Callable[[int], bytes | None]) -> bytes:
        """Return a compressed payload as it was.

        Args:
            payload: One that `is_compressed`.
            find: Returns a dictionary by number.

        Raises:
            StoreDamagedError: There is no such dictionary, or the frame is none of zstandard's.
        """
        number, frame = _split(payload)
        if number and number not in self._known:
            found = find(number)
            if found is None:
                raise StoreDamagedError(f"dictionary {number} is gone; restore a backup")
            self._known[number] = found
        try:
            return self._decompressor(number).decompress(frame)
        except zstandard.ZstdError as error:
            raise StoreDamagedError(f"a compressed payload cannot be read: {error}") from error

    # What zstandard gives may be used by one thread at a time.

    def _compressor(self) -> zstandard.ZstdCompressor:
        made: zstandard.ZstdCompressor | None = getattr(self._local, "compressor", None)
        if made is None:
            parameters = zstandard.ZstdCompressionParameters.from_level(
                self._level, write_content_size=True, write_checksum=False, write_dict_id=False
            )
            data = None
            if self.dictionary is not None:
                data = zstandard.ZstdCompressionDict(self.dictionary)
            made = zstandard.ZstdCompressor(compression_params=parameters, dict_data=data)
            self._local.compressor = made
        return made

    def _decompressor(self, number: int) -> zstandard.ZstdDecompressor:
        made: dict[int, zstandard.ZstdDecompressor] = self._local.__dict__.setdefault("read", {})
        if number not in made:
            data = zstandard.ZstdCompressionDict(self._known[number]) if number else None
            made[number] = zstandard.ZstdDecompressor(dict_data=data)
        return made[number]


def _split(payload: bytes) -> tuple[int, bytes]:
    held = _unpack(payload)
    size = {0xCC: 2, 0xCD: 3, 0xCE: 5}.get(held[0], 1)
    return msgspec.msgpack.decode(held[:size], type=int), held[size:]
