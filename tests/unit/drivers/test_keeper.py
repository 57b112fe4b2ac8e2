"""What a supervisor tells who keeps its sandbox; whether it holds is in integration."""

from hypothesis import given
from hypothesis import strategies as st

from shoal.drivers.sandbox.room_frames import (
    Furnishing,
    RoomEntry,
    pack_furnishing,
    packed,
    unpack_furnishing,
    unpacked,
)

TEXTS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20
)
LISTS = st.lists(TEXTS, max_size=5)
ENTRIES = st.builds(
    RoomEntry,
    processes_max=st.integers(0, 2**31),
    env=st.lists(st.builds("{}={}".format, TEXTS, TEXTS), max_size=5),
    argv=st.lists(TEXTS, min_size=1, max_size=5),
)


@given(ENTRIES)
def test_an_entry_arrives_as_it_was_sent(entry: RoomEntry) -> None:
    assert unpacked(packed(entry)) == entry


FURNISHINGS = st.builds(
    Furnishing,
    directory=TEXTS,
    scratch_bytes=st.integers(0, 2**53),
    shown=LISTS.map(tuple),
)


@given(FURNISHINGS)
def test_a_furnishing_arrives_as_it_was_sent(wanted: Furnishing) -> None:
    assert unpack_furnishing(pack_furnishing(wanted)) == wanted
