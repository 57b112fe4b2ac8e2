"""All that one attempt writes to stdout, kept as a blob when it has ended."""

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
    """A blob in the making. It is forgotten once anything of it is missing."""

    def __init__(self, store: BlobStore) -> None:
        self._draft: Draft | None = None
        try:
            self._draft = store.draft(FIRST_BYTES)
        except (ShoalError, OSError):
            return  # There is no room.

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
        """Keep the next piece. When one is missing, the others are worth nothing."""
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
        """Return the blob of all that was written; None if something is missing."""
        draft, self._draft = self._draft, None
        return None if draft is None else draft.finish(holder)

    def _forget(self) -> None:
        if self._draft is not None:
            self._draft.close()
            self._draft = None
