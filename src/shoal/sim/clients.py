"""Clients of a simulated shoal, which repeat requests until answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, final

import msgspec

from shoal.core.events import Answer, CancelRequested, JobSubmitted
from shoal.model.ids import JobId
from shoal.sim.agenda import Agenda
from shoal.sim.workload import Errand

PATIENCE_S: Final = 4.0
"""Time after which a client repeats an unanswered request."""


class ClientOrder(msgspec.Struct, kw_only=True):
    """A client's request and the answers it got."""

    errand: Errand
    accepted_at: float | None = None
    refused: str = ""
    cancel_asked: bool = False
    cancelled_at: float | None = None


Submitted = Callable[[Answer], None]
Request = tuple[Literal["submit", "cancel"], ClientOrder]


@final
class SimClients:
    """All clients of one world."""

    def __init__(
        self,
        agenda: Agenda,
        submit: Callable[[Errand, JobSubmitted | CancelRequested], bool],
    ) -> None:
        self.orders: dict[JobId, ClientOrder] = {}
        self._agenda = agenda
        self._submit = submit
        self._asked: dict[int, Request] = {}  # by token; each token is used once
        self._token = 0
        self._submitted: dict[JobId, Submitted] = {}

    def go(self, errand: Errand, submitted: Submitted | None = None) -> None:
        """Schedule an errand; call `submitted` once with the answer."""
        if submitted is not None:
            self._submitted[errand.job.id] = submitted
        order = ClientOrder(errand=errand)
        self.orders[errand.job.id] = order
        self._agenda.at(errand.at_s, self._ask, ("submit", order))
        if errand.repeat_after_s is not None:
            at = errand.at_s + errand.repeat_after_s
            self._agenda.at(at, self._ask_once, ("submit", order))

    def cancel(self, job: JobId) -> None:
        """Cancel a job now, unless already requested."""
        order = self.orders[job]
        if not order.cancel_asked:
            self._cancel(order)

    def on_answer(self, answer: Answer) -> Request | None:
        """Handle an answer; return its request unless it is a repeat."""
        request = self._asked.pop(answer.token, None)
        if request is None:
            return None
        kind, order = request
        if kind == "submit":
            self._on_submitted(order, answer)
            told = self._submitted.pop(answer.job, None)
            if told is not None:
                told(answer)
        elif order.cancelled_at is None:
            order.cancelled_at = self._agenda.now
        return request

    def _on_submitted(self, order: ClientOrder, answer: Answer) -> None:
        if answer.refused:
            order.refused = answer.refused
            return
        if order.accepted_at is not None:
            return
        order.accepted_at = self._agenda.now
        if order.errand.cancel_after_s is not None:
            self._agenda.after(order.errand.cancel_after_s, self._cancel, order)

    def _cancel(self, order: ClientOrder) -> None:
        order.cancel_asked = True
        self._ask(("cancel", order))

    def _ask(self, request: Request) -> None:
        if not _answered(request):
            self._ask_once(request)
            self._agenda.after(PATIENCE_S, self._ask, request)

    def _ask_once(self, request: Request) -> None:
        kind, order = request
        self._token += 1
        self._asked[self._token] = request
        job = order.errand.job
        if kind == "submit":
            self._submit(order.errand, JobSubmitted(self._token, job))
        else:
            self._submit(order.errand, CancelRequested(self._token, job.id))


def _answered(request: Request) -> bool:
    kind, order = request
    if kind == "submit":
        return order.accepted_at is not None or bool(order.refused)
    return order.cancelled_at is not None
