"""Connects the ends of channels to clients, to tasks, or to each other.

`core.channels` decides everything; this hands its effects to the user of each end, and
turns what the user does into facts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from shoal.core.channels.events import (
    ChannelDropped,
    ChannelFinished,
    ChannelSlowed,
    ChannelWanted,
    ChannelWrote,
    DeliverItems,
    EndChannel,
    PauseChannel,
    ServeChannel,
)
from shoal.protocol.channels import items as channel_items

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.core.events import Effect
    from shoal.core.membership.members import Admission
    from shoal.errors import ShoalError
    from shoal.model.ids import Attempt, NodeId
    from shoal.protocol.channels.messages import ChannelOpen, ChannelUse
    from shoal.runtime.host import Host

    Serve = Callable[["ChannelLine", Admission, ChannelOpen], "ChannelUser"]
    """Returns who uses an end that a peer opened; never blocks."""


class ChannelUser(Protocol):
    """Uses one end of a channel. None of these may block."""

    def deliver(self, items: tuple[bytes, ...], /) -> None:
        """Take items of the other end."""
        ...

    def pause(self, *, paused: bool) -> None:
        """Write nothing, or go on."""
        ...

    def ended(self, reason: str) -> None:
        """Note that the channel is gone; nothing else is called after that."""
        ...


@final
class ChannelLine:
    """One end, as its user has it."""

    def __init__(self, number: int, ends: ChannelEnds) -> None:
        self._number = number
        self._ends = ends

    def write(self, *items: bytes) -> None:
        """Send items to the other end."""
        self._ends.feed_now(ChannelWrote(self._number, items))

    def slow(self, *, slow: bool) -> None:
        """Take no items, or go on."""
        self._ends.feed(ChannelSlowed(self._number, slow))

    def finish(self) -> None:
        """Be done; what was written still arrives."""
        self._ends.forget(self._number)
        self._ends.feed(ChannelFinished(self._number))

    def drop(self, reason: str) -> None:
        """Give the channel up."""
        self._ends.forget(self._number)
        self._ends.feed(ChannelDropped(self._number, reason))


@final
class ChannelEnds:
    """All ends of channels at this node, and their users."""

    def __init__(self, host: Host, serve_task: Serve) -> None:
        """Tell the machine facts by `host`; serve channels to tasks as given."""
        self.feed, self.feed_now = host.feed, host.feed_now
        self._serve_task = serve_task
        self.serve_job: Serve | None = None  # Nothing before the API is up.
        self.serve_api: Serve | None = None  # The same.
        self._users: dict[int, ChannelUser] = {}
        self._number = 0

    @property
    def performers(self) -> dict[type[Effect], Callable[..., None]]:
        """What performs each effect of the machine."""
        return {
            ServeChannel: self._serve,
            DeliverItems: self._deliver,
            PauseChannel: self._pause,
            EndChannel: self._end,
        }

    def open(
        self,
        peer: NodeId,
        use: ChannelUse,
        make: Callable[[ChannelLine], ChannelUser],
        *,
        attempt: Attempt | None = None,
        job: str = "",
        task: str = "",
    ) -> None:
        """Open a channel, to be used by what `make` returns."""
        self._number += 1
        number = self._number
        self._users[number] = make(ChannelLine(number, self))
        self.feed(ChannelWanted(number, peer, use, attempt, job, task))

    def forget(self, number: int) -> None:
        """Tell the user of an end nothing more."""
        self._users.pop(number, None)

    def close(self) -> None:
        """End all channels."""
        users, self._users = self._users, {}
        for user in users.values():
            user.ended("the node ends")

    def _serve(self, effect: ServeChannel) -> None:
        line = ChannelLine(effect.end, self)
        serve = self._serve_task if effect.asked.attempt else self.serve_job
        if effect.asked.use.kind == "api":
            serve = self.serve_api
        if serve is None:
            line.drop("the node is starting; try again")
        else:
            self._users[effect.end] = serve(line, effect.caller, effect.asked)

    def _deliver(self, effect: DeliverItems) -> None:
        if (user := self._users.get(effect.end)) is not None:
            user.deliver(effect.items)

    def _pause(self, effect: PauseChannel) -> None:
        if (user := self._users.get(effect.end)) is not None:
            user.pause(paused=effect.paused)

    def _end(self, effect: EndChannel) -> None:
        if (user := self._users.pop(effect.end, None)) is not None:
            user.ended(effect.reason)


@final
class Joint:
    """Joins two channels: what comes out of one goes into the other."""

    def __init__(self, line: ChannelLine) -> None:
        self.line = line
        self.other: Joint | None = None  # None: nothing yet, or not any more
        self._early: list[bytes] = []  # what came before; at most a window
        self._is_over = False

    def join(self, other: Joint) -> None:
        """Join two channels; pass on the items that came before."""
        self.other, other.other = other, self
        if self._is_over:
            other.other = None
            other.line.drop("its user has gone")
            return
        early, self._early = self._early, []
        if early:
            other.line.write(*early)
        self.line.slow(slow=False)

    def refuse(self, error: ShoalError) -> None:
        """Say why there is nothing to join this to."""
        if not self._is_over:
            told = channel_items.failed(
                error.what, error.because or "", error.hint or ""
            )
            self.line.write(told)
            self.line.finish()

    def deliver(self, items: tuple[bytes, ...]) -> None:
        """Pass items on."""
        if self.other is not None:
            self.other.line.write(*items)
        else:
            self._early += items

    def pause(self, *, paused: bool) -> None:
        """Let the other end wait while this one is full."""
        if self.other is not None:
            self.other.line.slow(slow=paused)

    def ended(self, reason: str) -> None:
        """End the other channel, too; a good end lets what was said arrive."""
        self._is_over = True
        other, self.other = self.other, None
        if other is None:
            return
        other.other = None
        if reason:
            other.line.drop(reason)
        else:
            other.line.finish()
