"""What is drawn is read again by a library that has no line in common with ours."""

import numpy as np
import pytest
import segno
import zxingcpp

from shoal.cli.display import qr
from shoal.net.joining.invitations import Invitation, decode, encode

INVITATION = Invitation(
    shoal="reef",
    key_print=bytes(range(16)),
    secret=bytes(range(16, 32)),
    expires_wall_s=1_800_000_000,
    addresses=("/ip4/192.0.2.2/tcp/4001/p2p/12D3KooWPCU6WjpxcPcXc2jREkbC78uzi9HA",),
)
HALVES = {" ": (0, 0), "▀": (1, 0), "▄": (0, 1), "█": (1, 1)}


def rows_of(lines: list[str]) -> list[list[int]]:
    """Return the squares of a drawing, 1 where the colour of letters is."""
    rows: list[list[int]] = []
    for line in lines:
        text = line.removeprefix(qr.BLACK_ON_WHITE).removesuffix(qr.AS_BEFORE)
        pairs = [HALVES[letter] for letter in text]
        rows += [[upper for upper, _ in pairs], [lower for _, lower in pairs]]
    return rows


def read(dark: list[list[int]]) -> str:
    """Read a code as a camera would: eight dots for each square."""
    dots = np.kron(1 - np.array(dark, dtype=np.uint8), np.ones((8, 8), np.uint8))
    [found] = zxingcpp.read_barcodes(dots * 255)
    return found.text


def test_a_camera_reads_the_invitation_that_was_drawn() -> None:
    text = encode(INVITATION)

    drawn = qr.lines(qr.modules(text), colours=True)

    assert decode(read(rows_of(drawn))) == INVITATION


def test_without_colours_what_is_light_is_drawn() -> None:
    text = encode(INVITATION)

    drawn = qr.lines(qr.modules(text), colours=False)

    assert not any("\x1b" in line for line in drawn)
    assert read([[1 - cell for cell in row] for row in rows_of(drawn)]) == text.upper()


@pytest.mark.parametrize("colours", [True, False])
def test_every_square_is_where_the_library_put_it_within_a_light_border(
    colours: bool,
) -> None:
    code = segno.make_qr("SHOAL1-ABC", error="l")

    rows = rows_of(qr.lines(qr.modules("shoal1-ABC"), colours=colours))

    dark = rows if colours else [[1 - cell for cell in row] for row in rows]
    within = [row[4:-4] for row in dark[4 : 4 + len(code.matrix)]]
    assert within == [list(row) for row in code.matrix]
    assert sum(map(sum, dark)) == sum(map(sum, within))
    assert {len(row) for row in dark} == {len(code.matrix) + 8}
    assert len(dark) - len(code.matrix) in (8, 9)  # A line is two rows.
