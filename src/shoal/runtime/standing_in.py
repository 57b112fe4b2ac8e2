"""Invitations change hands: an admin redeems those of a node that has left.

At any time one node at most may redeem an invitation: that which gave it out, or the
admin to whom it gave it away when it left. So nobody has to agree with anybody on who
came first (docs/decisions/0017-one-node-redeems-an-invitation.md).
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, final

import msgspec

from shoal.errors import ShoalError
from shoal.net.invitations import Open, Terms
from shoal.protocol.messages import Refusal
from shoal.protocol.newcomers import InvitationGiven, InvitationTaken
from shoal.runtime import invited
from shoal.runtime.granting import least

if TYPE_CHECKING:
    from shoal.core.membership import Admission
    from shoal.model.ids import NodeId, RequestId
    from shoal.net.invitations import Book
    from shoal.runtime.company import Company
    from shoal.runtime.granting import Granting
    from shoal.runtime.home import Home

HAND_OVER_S: Final = 2.0


@final
class StandingIn:
    """Gives the invitations in a book away, and takes in those of others."""

    def __init__(
        self, home: Home, book: Book, granting: Granting, company: Company
    ) -> None:
        self._home = home
        self._book = book
        self._granting = granting
        self._company = company

    async def hand_over(self) -> None:
        """Give what newcomers still hold to an admin, who redeems it from now on.

        It is written down before it is said. If the admin did not hear of it, the
        next life of this node hears so from it, and takes the invitation back.
        """
        company = self._company
        stand_in = next((n for n in company.linked() if company.is_admin(n)), None)
        if stand_in is None:
            return
        now = time.time()
        given = [
            one
            for one in self._book
            if one.left > 0 and one.ends_at > now and not one.given_to
        ]
        for one in given:
            one.given_to = stand_in
        if given:
            invited.save(self._home, self._book)
        messages = [_given(one, company.next_request(), now) for one in given]
        async with asyncio.TaskGroup() as group:
            for message in messages:
                group.create_task(company.ask(stand_in, message, HAND_OVER_S))

    def on_given(
        self, peer: NodeId, given: InvitationGiven
    ) -> InvitationTaken | Refusal:
        """Redeem what another admin gave out, within what that admin may give."""
        admission = self._company.admission(peer)
        try:
            self._granting.check()
            if admission is None or "admin" not in admission.roles:
                return Refusal(request=given.request, reason="not from an admin")
            now = time.time()
            self._book.take(_taken(given, admission, now), now)
            invited.save(self._home, self._book)
        except (ShoalError, OSError) as error:
            return Refusal(request=given.request, reason=str(error))
        return InvitationTaken(request=given.request)


def _given(one: Open, request: RequestId, now: float) -> InvitationGiven:
    return InvitationGiven(
        request=request,
        digest=one.digest,
        uses=one.left,
        ends_in_s=one.ends_at - now,
        **msgspec.structs.asdict(one.terms),
    )


def _taken(given: InvitationGiven, giver: Admission, now: float) -> Open:
    """Return an invitation that gives no more than whoever gave it out has."""
    terms = Terms(
        roles=tuple(role for role in giver.roles if role in given.roles),
        owner=given.owner,
        top_priority=min(given.top_priority, giver.top_priority),
        quota_gpus=least(given.quota_gpus, giver.quota_gpus),
        quota_cpu_milli=least(given.quota_cpu_milli, giver.quota_cpu_milli),
        valid_for_s=min(given.valid_for_s, giver.valid_for_s),
    )
    return Open(given.digest, terms, given.uses, now + given.ends_in_s, [])
