"""Tables for notebooks: what `_repr_html_` of clients, jobs and futures shows."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(
    title: str, rows: Iterable[Sequence[object]], heads: Sequence[str] = ()
) -> str:
    """Return an HTML table; all texts are escaped."""
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    top = f"<thead><tr>{head}</tr></thead>" if head else ""
    caption = f"<caption>{escape(title)}</caption>"
    return f"<table>{caption}{top}<tbody>{body}</tbody></table>"
