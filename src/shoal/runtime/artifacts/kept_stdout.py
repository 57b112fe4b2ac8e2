"""Record the whole stdout of one attempt as a blob, at most `STDOUT_BYTES_MAX`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, final

from shoal.errors import ShoalError

if TYPE_CHECKING:
    from types import TracebackType

    from shoal.blobs.store import BlobStore, Draft
    from shoal.model.ids import BlobId

STDOUT_BYTES_MAX: Final = 1 << 30
FIRST_BYTES: Final = 1 << 16


@final
class KeptStdout:
    """A blob being written; discarded as soon as a part is missing."""

    def __init__(self, store: BlobStore) -> None:
        self._draft: Draft | None = None
        try:
            self._draft = store.draft(FIRST_BYTES)
        except (ShoalError, OSError):
            return  # There is no disk space.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._forget()

    def write(self, offset: int, data: bytes) -> None:
        """Append a piece; a gap, an error or too many bytes discard the blob."""
        draft = self._draft
        if draft is None or not data:
            return
        end = offset + len(data)
        if offset != draft.size or end > STDOUT_BYTES_MAX:
            self._forget()
            return
        try:
            draft.write(data)
        except (ShoalError, OSError):
            self._forget()

    def finish(self, holder: str) -> BlobId | None:
        """Return the blob of the whole stdout; None if a part is missing."""
        draft, self._draft = self._draft, None
        return None if draft is None else draft.finish(holder)

    def _forget(self) -> None:
        if self._draft is not None:
            self._draft.close()
            self._draft = None
