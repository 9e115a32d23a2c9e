"""Faults in namespaces, keys and kinds: names that are not kept exactly."""

from __future__ import annotations

import unicodedata

from msgspec.structs import replace

from pico_conformance.zoo.mutant import plant
from pico_conformance.zoo.wrapper import Readdressed, Rewritten
from pico_store.batch import MainWrite
from pico_store.records import Entry


@plant("VAL-1")
class NoKeyIsEmptyKey(Readdressed):
    """No key and the empty key are one address."""

    def named(self, namespace: str, key: str | None) -> tuple[str, str | None]:
        return namespace, key or ""


@plant("VAL-1", "JSON-3")
class KeysNormalised(Readdressed):
    """Keys are brought into Unicode's composed form."""

    def named(self, namespace: str, key: str | None) -> tuple[str, str | None]:
        return namespace, None if key is None else unicodedata.normalize("NFC", key)


@plant("VAL-1", "JSON-3")
class KeysWithoutCase(Readdressed):
    """Keys that differ in case alone are one."""

    def named(self, namespace: str, key: str | None) -> tuple[str, str | None]:
        return namespace, None if key is None else key.lower()


@plant("VAL-1", "JSON-3")
class KeysEndAtNul(Readdressed):
    """A key ends before its first NUL."""

    def named(self, namespace: str, key: str | None) -> tuple[str, str | None]:
        return namespace, None if key is None else key.partition("\0")[0]


@plant("VAL-1", "JSON-3")
class KeysStripped(Readdressed):
    """White space at the ends of a key is dropped."""

    def named(self, namespace: str, key: str | None) -> tuple[str, str | None]:
        return namespace, None if key is None else key.strip()


@plant("VAL-1", "JSON-5")
class KeysCutShort(Readdressed):
    """Keys that agree in their first 511 bytes are one, as where an engine keeps no more."""

    def named(self, namespace: str, key: str | None) -> tuple[str, str | None]:
        stored = b"" if key is None else key.encode(errors="surrogatepass")
        return namespace, key if len(stored) <= 511 else stored[:511].decode(errors="ignore")


@plant("VAL-1")
class NamesJoined(Readdressed):
    """Namespace and key are joined by a slash that both may contain."""

    def named(self, namespace: str, key: str | None) -> tuple[str, str | None]:
        head, slash, rest = namespace.partition("/")
        if not (head and slash and rest):
            return namespace, key
        return head, rest if key is None else f"{rest}/{key}"


@plant("ENT-1", "JSON-3")
class KindsNormalised(Rewritten):
    """Kinds and keys of entries are brought into Unicode's composed form."""

    def write(self, write: MainWrite) -> MainWrite:
        if not isinstance(write, Entry) or type(write.kind) is not str:
            return write
        key = write.key
        if type(key) is str:
            key = unicodedata.normalize("NFC", key)
        return replace(write, kind=unicodedata.normalize("NFC", write.kind), key=key)


@plant("ENT-1", "PAGE-8")
class EmptyEntryKeyLost(Rewritten):
    """An entry's empty key is taken for none."""

    def write(self, write: MainWrite) -> MainWrite:
        return replace(write, key=None) if isinstance(write, Entry) and write.key == "" else write
