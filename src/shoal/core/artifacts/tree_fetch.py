"""Fetch a tree with all its files, from any holder.

Theory of operation. First the disk is asked what the tree lists. If the tree is not
here it is fetched as a blob, and the disk is asked again. Then its missing files are
fetched, `FILES_AT_ONCE_MAX` at a time. A peer that was asked may name others that hold
the tree (`BlobHeld`): they are asked, too. In the end the first source is told that
this node holds the tree now.

    TreeWanted --> listing --not here--> its bytes are fetched --> listing
                           --listed----> its files are fetched --> AnswerFetch
    a file cannot be had --tries are left--> after `AGAIN_S`, listing
                         --else------------> AnswerFetch, with the reason

Nothing is journalled. At most `HINTS_MAX` peers are believed to hold one tree.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from shoal.core.artifacts.events import AnswerFetch, ReadTree
from shoal.core.discovery.events import LearnAddresses
from shoal.core.events import Send
from shoal.model.ids import BlobId, NodeId
from shoal.protocol.messages import BlobHeld

if TYPE_CHECKING:
    from shoal.core.artifacts.events import BlobEffect, TreeRead, TreeWanted
    from shoal.core.artifacts.piece_fetch import FetchEnded, PieceFetch

    TreeStep = BlobEffect | LearnAddresses | Send | FetchEnded

FILES_AT_ONCE_MAX: Final = 1_024
"""Most files of one tree that are fetched at a time."""

AGAIN_S: Final = 2.0
HINTS_MAX: Final = 32


@final
class _Fetching:
    """A tree on its way."""

    def __init__(self, wanted: TreeWanted) -> None:
        self.wanted = wanted
        self.tries_left = wanted.tries
        self.again_at: float | None = None  # after a failed try
        self.hints: dict[NodeId, None] = {}
        self.is_fetched = False  # the tree itself, in this try
        self.todo: deque[BlobId] = deque()
        self.open: dict[BlobId, None] = {}  # the tree, or files of it


@final
class TreeFetch:
    """All trees that one node fetches, by the tokens of who wants them."""

    def __init__(self, node: NodeId, pieces: PieceFetch) -> None:
        self._node = node
        self._pieces = pieces
        self._of: dict[int, _Fetching] = {}

    def __contains__(self, token: int) -> bool:
        return token in self._of

    def __len__(self) -> int:
        return len(self._of)

    def next_deadline(self) -> float | None:
        """When to call `on_deadline`, if ever."""
        due = (f.again_at for f in self._of.values() if f.again_at is not None)
        return min(due, default=None)

    def want(self, wanted: TreeWanted) -> list[TreeStep]:
        """Begin to fetch a tree."""
        self._of[wanted.token] = _Fetching(wanted)
        return [ReadTree(wanted.token, wanted.tree)]

    def drop(self, token: int) -> list[TreeStep]:
        """Want a tree no more."""
        return self._let_go(token, self._of.pop(token))

    def _let_go(self, token: int, fetching: _Fetching) -> list[TreeStep]:
        blobs, fetching.open = fetching.open, {}
        fetching.todo.clear()
        return [step for blob in blobs for step in self._pieces.drop(token, blob)]

    def on_read(self, event: TreeRead, now: float) -> list[TreeStep]:
        """Fetch what a tree lists, or the tree itself if it is not here."""
        fetching = self._of.get(event.token)
        if fetching is None or fetching.again_at is not None:
            return []
        if not event.reason:
            fetching.todo.extend(event.missing)
            return self._more(event.token, fetching, now)
        if event.is_here or fetching.is_fetched:
            reason = f"what was fetched is no tree: {event.reason}"
            return self._fail(event.token, fetching, reason, now)
        fetching.open[event.tree] = None
        sources = fetching.wanted.sources
        return [*self._pieces.want(event.token, event.tree, sources, BlobId(""), now)]

    def on_blob(
        self, token: int, blob: BlobId, reason: str, now: float
    ) -> list[TreeStep]:
        """Go on after one blob of a tree is here, or cannot be had."""
        fetching = self._of[token]
        if blob not in fetching.open:
            return []  # This try has failed already.
        del fetching.open[blob]
        if reason:
            return self._fail(token, fetching, reason, now)
        if blob == fetching.wanted.tree:
            fetching.is_fetched = True
            return [ReadTree(token, blob)]
        return self._more(token, fetching, now)

    def on_hint(self, peer: NodeId, held: BlobHeld) -> list[TreeStep]:
        """Ask other holders, too, if a peer names them that was asked itself."""
        steps: list[TreeStep] = []
        for fetching in self._of.values():
            wanted = fetching.wanted
            if wanted.tree != held.blob or peer not in wanted.sources:
                continue
            for holder in held.holders:
                known = (self._node, *wanted.sources, *fetching.hints)
                if holder.node in known or len(fetching.hints) >= HINTS_MAX:
                    continue
                fetching.hints[holder.node] = None
                steps.append(LearnAddresses(holder.node, holder.addresses))
                for blob in fetching.open:
                    self._pieces.add_source(blob, holder.node)
        return steps

    def on_deadline(self, now: float) -> list[TreeStep]:
        """Try again what failed a while ago."""
        steps: list[TreeStep] = []
        for token, fetching in self._of.items():
            if fetching.again_at is not None and fetching.again_at <= now:
                fetching.again_at = None
                fetching.is_fetched = False
                steps.append(ReadTree(token, fetching.wanted.tree))
        return steps

    def _more(self, token: int, fetching: _Fetching, now: float) -> list[TreeStep]:
        """Fetch more files; answer when all of them are here."""
        steps: list[TreeStep] = []
        wanted = fetching.wanted
        sources = (*wanted.sources, *fetching.hints)
        while fetching.todo and len(fetching.open) < FILES_AT_ONCE_MAX:
            blob = fetching.todo.popleft()
            fetching.open[blob] = None
            steps += self._pieces.want(token, blob, sources, wanted.tree, now)
        if fetching.open:
            return steps
        del self._of[token]
        held = [Send(peer, BlobHeld(blob=wanted.tree)) for peer in wanted.sources[:1]]
        return [*held, AnswerFetch(token)]

    def _fail(
        self, token: int, fetching: _Fetching, reason: str, now: float
    ) -> list[TreeStep]:
        steps = self._let_go(token, fetching)
        fetching.tries_left -= 1
        if fetching.tries_left > 0:
            fetching.again_at = now + AGAIN_S
            return steps
        del self._of[token]
        return [*steps, AnswerFetch(token, reason)]
