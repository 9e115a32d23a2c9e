"""Addresses as keys: short and long ones, in the order of code points."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pico_lmdb.names import HEAD_BYTES, KEY_BYTES_MAX, address, fit, rest, split, whole
from pico_lmdb.storage import LmdbStorage
from pico_store.address import ConversationAddress, SessionAddress
from pico_store.batch import MainBatch, ValueSet
from pico_store.query import ValueQuery
from tests.backends.lmdb.scene import ROOT

PREFIX = b"\0\0\0\1" + bytes(8)
TEXTS = st.text(
    st.one_of(
        st.sampled_from("\0\1\2\x7f\xff\uffff\U0010ffff"), st.characters(exclude_categories=["Cs"])
    ),
    max_size=8,
)
NAMES = TEXTS.filter(bool)


@given(NAMES, st.none() | TEXTS, st.sampled_from(["value", "list"]))
def test_an_address_is_read_back_from_its_key(namespace: str, key: str | None, shape: str) -> None:
    name = address(shape, namespace, key)  # type: ignore[arg-type]

    assert split(name) == (shape, namespace, key)


@given(st.lists(st.tuples(NAMES, st.none() | TEXTS), min_size=2))
def test_keys_sort_as_namespaces_and_keys_do(places: list[tuple[str, str | None]]) -> None:
    def by_code_point(place: tuple[str, str | None]) -> tuple[bytes, bool, bytes]:
        namespace, key = place
        return namespace.encode(), key is not None, (key or "").encode()

    by_key = sorted(places, key=lambda place: address("value", *place))

    assert by_key == sorted(places, key=by_code_point)


@given(st.binary(min_size=HEAD_BYTES - 2, max_size=HEAD_BYTES + 3))
def test_a_key_fits_and_is_whole_again(full: bytes) -> None:
    key = fit(full)

    assert len(key) <= KEY_BYTES_MAX
    assert whole(key, rest(full)) == full
    assert (key == full) is (len(full) <= HEAD_BYTES)


def _keys_alike() -> list[str]:
    """Return keys whose bytes differ before, at and long after what LMDB keeps of them."""
    stem = "k" * (HEAD_BYTES - len(PREFIX) - len(address("value", "v", "")))
    keys = [stem[:-1], stem, stem + "\0", stem + "a", stem + "a\0", stem[:-1] + "l"]
    keys += [stem + "m" * 500 + tail for tail in ("", "\0", "\uffff", "\U00010000", "z")]
    return keys


def test_long_keys_are_scanned_in_the_order_of_code_points(storage: LmdbStorage) -> None:
    keys = _keys_alike()
    in_order = sorted(keys, key=str.encode)
    scope = ConversationAddress(ROOT, "v")
    for key in reversed(keys):
        storage.commit(MainBatch((ValueSet(ConversationAddress(ROOT, "v", key), key),)))

    assert [v.key for v in storage.scan_values(ValueQuery(scope=scope)).items] == in_order
    for index, key in enumerate(in_order):
        found = storage.get_value(ConversationAddress(ROOT, "v", key))
        assert found is not None
        assert found.value == key
        page = storage.scan_values(ValueQuery(scope=scope, after=key, limit=2))
        assert [v.key for v in page.items] == in_order[index + 1 : index + 3]
        assert (page.next is None) is (index + 3 >= len(in_order))


def test_long_namespaces_that_begin_alike_are_apart(storage: LmdbStorage) -> None:
    stem = "n" * 1_000
    for tail in ("", "a", "b", "\0"):
        storage.commit(
            MainBatch(
                tuple(ValueSet(SessionAddress(stem + tail, key), tail) for key in ("1", "2", None))
            )
        )

    for tail in ("", "a", "b", "\0"):
        page = storage.scan_values(ValueQuery(scope=SessionAddress(stem + tail)))
        assert [(v.key, v.value) for v in page.items] == [("1", tail), ("2", tail)]
    assert storage.scan_values(ValueQuery(scope=SessionAddress(stem + "c"))).items == []
