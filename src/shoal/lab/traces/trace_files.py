"""Read text, CSV and JSON files as streams, compressed or not.

Compression is recognised by the first bytes, not by the name. Whatever is wrong
is a `TraceError` that names the file and the line.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TextIO, final

from shoal.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

CHUNK_CHARS: Final = 1 << 16
ITEM_CHARS_MAX: Final = 1 << 26
LINE_CHARS_MAX: Final = 1 << 20
GZIP_MAGIC: Final = b"\x1f\x8b"


@contextmanager
def opened(path: Path) -> Generator[TextIO, None, None]:
    """Open a text file, compressed or not; errors name the file."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        if packed:
            with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as text:
                yield text
        else:
            with path.open(encoding="utf-8-sig", newline="") as text:
                yield text
    except FileNotFoundError as error:
        raise TraceError(
            "there is no such file", file=str(path), hint="check the path"
        ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(
            "the compressed file is damaged",
            file=str(path),
            because=str(error),
            hint="fetch it again",
        ) from error
    except UnicodeDecodeError as error:
        raise TraceError(
            "this is no text", file=str(path), because=str(error)
        ) from error
    except OSError as error:
        raise TraceError(
            "the file cannot be read",
            file=str(path),
            because=error.strerror or str(error),
        ) from error


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Go through the lines that are not blank, with their numbers."""
    with opened(path) as text:
        number = 0
        while line := text.readline(LINE_CHARS_MAX):
            number += 1
            if len(line) == LINE_CHARS_MAX:
                raise TraceError(
                    f"the line is longer than {LINE_CHARS_MAX} characters",
                    file=str(path),
                    line=number,
                )
            if stripped := line.strip():
                yield number, stripped


@final
class TraceFields:
    """One row of a file: its fields by name, and where it is."""

    __slots__ = ("_values", "file", "line")

    def __init__(self, values: dict[str, str], file: str, line: int) -> None:
        self._values = values
        self.file = file
        self.line = line

    def text(self, name: str) -> str:
        """Return a field without blanks around it; empty if there is none."""
        return self._values.get(name, "")

    def number(self, name: str, default: float | None = None) -> float:
        """Return a field as a number; a missing one is an error without a default."""
        text = self._values.get(name, "")
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.wrong(name, "a number")
        return value

    def whole(
        self, name: str, default: int | None = None, *, least: int | None = None
    ) -> int:
        """Return a field as a whole number."""
        value = self.number(name, None if default is None else float(default))
        if value != int(value):
            raise self.wrong(name, "a whole number")
        if least is not None and value < least:
            raise self.wrong(name, f"a whole number of at least {least}")
        return int(value)

    def wrong(self, name: str, wanted: str) -> TraceError:
        """Return an error about a field."""
        return TraceError(
            f"{name} is '{self.text(name)}', not {wanted}",
            file=self.file,
            line=self.line,
        )


def rows(path: Path, columns: Collection[str]) -> Iterator[TraceFields]:
    """Go through the rows of a file of comma-separated values with a heading.

    All `columns` must be there; rows may stop early, and blank ones are left out.
    """
    file = str(path)
    with opened(path) as text:
        reader = csv.reader(text)
        names = [name.strip() for name in _next_row(reader, file)]
        if missing := [name for name in columns if name not in names]:
            raise TraceError(
                f"there is no column {', '.join(missing)}",
                file=file,
                line=1,
                because=f"there are {', '.join(names) or 'none'}",
            )
        while True:
            cells = [cell.strip() for cell in _next_row(reader, file)]
            if cells == [END]:
                return
            if not any(cells):
                continue
            if len(cells) > len(names):
                raise TraceError(
                    f"{len(cells)} fields, and {len(names)} in the heading",
                    file=file,
                    line=reader.line_num,
                )
            yield TraceFields(
                dict(zip(names, cells, strict=False)), file, reader.line_num
            )


END: Final = "\0end"


class _Rows(Protocol):
    @property
    def line_num(self) -> int: ...

    def __iter__(self) -> Iterator[list[str]]: ...

    def __next__(self) -> list[str]: ...


def _next_row(reader: _Rows, file: str) -> list[str]:
    try:
        return next(reader, [END])
    except csv.Error as error:
        raise TraceError(
            "the row cannot be read",
            file=file,
            line=reader.line_num,
            because=str(error),
        ) from error


def heading(path: Path) -> str:
    """Return the first line that is not blank; empty if there is none."""
    return next((line for _, line in numbered_lines(path)), "")


def json_items(path: Path) -> Iterator[object]:
    """Go through the items of a JSON array, one at a time, however long it is."""
    decoder = json.JSONDecoder()
    with opened(path) as text:
        buffer = _Buffer(text, str(path))
        if buffer.skip() != "[":
            raise buffer.wrong("this is no JSON array")
        buffer.take(1)
        while (ahead := buffer.skip()) != "]":
            if ahead == ",":
                buffer.take(1)
                buffer.skip()
            yield buffer.item(decoder)


@final
class _Buffer:
    """What was read of a file and not yet understood."""

    def __init__(self, text: TextIO, file: str) -> None:
        self._text = text
        self._file = file
        self._ahead = ""
        self._line = 1

    def skip(self) -> str:
        """Pass blanks; return the character that follows."""
        while True:
            stripped = self._ahead.lstrip()
            if stripped:
                self.take(len(self._ahead) - len(stripped))
                return stripped[0]
            self.take(len(self._ahead))
            if not self._more():
                raise self.wrong("the JSON ends too early")

    def take(self, chars: int) -> None:
        """Drop characters that have been read."""
        self._line += self._ahead.count("\n", 0, chars)
        self._ahead = self._ahead[chars:]

    def item(self, decoder: json.JSONDecoder) -> object:
        """Return the value that begins here."""
        while True:
            try:
                value: object
                value, end = decoder.raw_decode(self._ahead)
            except (ValueError, RecursionError) as error:
                if len(self._ahead) > ITEM_CHARS_MAX or not self._more():
                    raise self.wrong(f"this is no JSON: {error}") from error
                continue
            # A number at the end of what was read may go on.
            if end == len(self._ahead) and self._more():
                continue
            self.take(end)
            return value

    def wrong(self, what: str) -> TraceError:
        return TraceError(what, file=self._file, line=self._line)

    def _more(self) -> bool:
        chunk = self._text.read(max(CHUNK_CHARS, len(self._ahead)))
        self._ahead += chunk
        return bool(chunk)
