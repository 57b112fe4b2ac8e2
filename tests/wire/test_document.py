from pathlib import Path

import pytest

from shoal.model.text import bounds
from shoal.protocol import limits
from shoal.protocol.codec import MESSAGES

DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in DOCUMENT.read_text().splitlines()
    if line.startswith("| `")
]
LIMITS = {
    name: value
    for module in (bounds, limits)
    for name, value in vars(module).items()
    if name.endswith(("_MAX", "_MAX_S"))
}


@pytest.mark.parametrize("kind", MESSAGES)
def test_every_message_is_in_the_table_of_messages(kind: type) -> None:
    rows = [row for row in ROWS if row[0] == f"`{kind.__name__}`"]

    assert [len(row) for row in rows] == [5]


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_is_in_the_tables_of_limits(name: str) -> None:
    value = LIMITS[name]
    shown = f"{value:,}" if isinstance(value, int) else f"{value:,.17g}"

    assert [row[1] for row in ROWS if row[0] == f"`{name}`"] == [shown]


def test_the_document_names_no_message_or_limit_that_is_gone() -> None:
    known = {f"`{kind.__name__}`" for kind in MESSAGES} | {f"`{n}`" for n in LIMITS}
    kinds_of_error = {"`oversized`", "`malformed`", "`unknown-tag`", "`version`"}

    assert {row[0] for row in ROWS} == known | kinds_of_error
