"""The host of the allocator: performs its effects, and asks it for users.

Each effect becomes one background task that feeds what came of it. Effects of one
allocation do not wait for each other: the machine sends the next only when it may.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, final

from shoal.core.admission.events import InvitationWithdrawn
from shoal.core.admission.invitation_book import InvitationTerms
from shoal.core.allocation.events import (
    AllocationAdded,
    AllocationChanged,
    AllocationTried,
    AnswerAllocation,
    CancelPilot,
    PilotRefused,
    PilotsPolled,
    PilotSubmitted,
    PollPilots,
    SeenPilot,
    SubmitPilot,
    TryAllocation,
)
from shoal.errors import EngineError, NotFoundError, ShoalError, UsageError
from shoal.net.joining.invitations import decode
from shoal.protocol.admission_proofs import secret_digest
from shoal.runtime.allocation.pilot_script import pilot_script
from shoal.runtime.allocation.slurm import Slurm
from shoal.runtime.background_tasks import BackgroundTasks
from shoal.runtime.membership.grant_signing import ROLES

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from shoal.core.allocation.records import AllocationKept, AllocationTerms
    from shoal.core.events import Effect
    from shoal.runtime.admission.admission_desk import AdmissionDesk
    from shoal.runtime.allocation.engines import LendingEngine
    from shoal.runtime.discovery.node_network import NodeNetwork
    from shoal.runtime.node import Node

INVITED_S: Final = 7 * 86_400.0
"""How long a pilot may wait in a queue and still join."""

MEMBER_S: Final = 3_600.0
"""How long a grant of a pilot outlives its time."""

LOGS: Final = "pilots"
HIDDEN: Final = "shoal1-(made for each pilot)"


@final
class Allocations:
    """Performs what the allocator of a node asks for."""

    def __init__(self, node: Node, desk: AdmissionDesk, network: NodeNetwork) -> None:
        self._node, self._desk, self._network = node, desk, network
        self.engines: dict[str, LendingEngine] = {"slurm": Slurm(node.home.path / LOGS)}
        self._tasks = BackgroundTasks()
        self._token = 0
        self._open: dict[int, asyncio.Future[str]] = {}

    @property
    def performers(self) -> Mapping[type[Effect], Callable[..., None]]:
        """The performer of each effect."""
        return {
            TryAllocation: self._begin(self._try),
            SubmitPilot: self._begin(self._submit),
            PollPilots: self._begin(self._poll),
            CancelPilot: self._begin(self._cancel),
            AnswerAllocation: self._answer,
        }

    def _begin(
        self, work: Callable[[Any], Coroutine[Any, Any, None]]
    ) -> Callable[[Any], None]:
        def perform(effect: Effect) -> None:
            self._tasks.start(work(effect))

        return perform

    async def close(self) -> None:
        """End what is under way; the journal knows what was sent."""
        await self._tasks.close()

    # For users.

    @property
    def known(self) -> list[AllocationKept]:
        """All allocations, by name."""
        found = {} if self._node.allocator is None else self._node.allocator.known
        return [found[name] for name in sorted(found)]

    def called(self, name: str) -> AllocationKept:
        """Return the allocation of this name."""
        for each in self.known:
            if each.terms.name == name:
                return each
        names = ", ".join(each.terms.name for each in self.known)
        raise NotFoundError(
            f"there is no allocation '{name}'",
            because=f"those there are: {names}" if names else "there are none",
            hint="`shoal alloc list` shows them",
        )

    async def add(self, terms: AllocationTerms) -> str:
        """Add an allocation; return why the engine refuses it, if so."""
        self._engine(terms)
        self._node.granting.check()
        self.addresses()
        was_there = terms.name in (each.terms.name for each in self.known)
        refused = await self._ask(AllocationAdded, terms)
        is_there = terms.name in (each.terms.name for each in self.known)
        if refused and (was_there or not is_there):
            raise UsageError(
                f"the allocation '{terms.name}' was not added",
                because=refused,
                hint="`shoal alloc list` shows what there is",
            )
        return refused

    async def change(self, name: str, change: str) -> str:
        """Pause, resume or remove an allocation; return why that is in vain, if so."""
        self.called(name)
        return await self._ask(AllocationChanged, name, change)

    async def dry_run(self, terms: AllocationTerms) -> tuple[str, str, str]:
        """Return a command and a script, and why the engine would not take them."""
        engine, name = self._engine(terms), self._job_name(terms, 1)
        script = pilot_script(terms, 1, HIDDEN)
        command = " ".join(engine.command(terms, name))
        try:
            return command, script, await engine.attempt(terms, name, script)
        except EngineError as error:
            return command, script, str(error)

    async def _ask(self, fact: Callable[..., Any], *fields: object) -> str:
        self._token += 1
        token = self._token
        self._open[token] = asyncio.get_running_loop().create_future()
        self._node.feed(fact(token, *fields))
        try:
            return await self._open[token]
        finally:
            del self._open[token]

    def _answer(self, effect: AnswerAllocation) -> None:
        waiting = self._open.get(effect.token)
        if waiting is not None and not waiting.done():
            waiting.set_result(effect.refused)

    # For the machine.

    async def _try(self, effect: TryAllocation) -> None:
        terms = effect.terms
        name = self._job_name(terms, 1)
        try:
            engine = self._engine(terms)
            script = pilot_script(terms, 1, HIDDEN)
            refused = await engine.attempt(terms, name, script)
        except ShoalError as error:
            refused = str(error)
        self._node.feed(AllocationTried(terms.name, refused))

    async def _submit(self, effect: SubmitPilot) -> None:
        terms, number = effect.terms, effect.number
        digest = b""
        try:
            invitation = await self._invite(terms)
            digest = secret_digest(decode(invitation).secret)
            script = pilot_script(terms, number, invitation)
            name = self._job_name(terms, number)
            native = await self._engine(terms).submit(terms, name, script)
        except ShoalError as error:
            final = isinstance(error, EngineError) and error.final
            if digest:
                self._node.feed(InvitationWithdrawn(digest))
            self._node.feed(PilotRefused(terms.name, number, str(error), final))
            return
        self._node.feed(PilotSubmitted(terms.name, number, native, digest))

    async def _invite(self, terms: AllocationTerms) -> str:
        """Return an invitation for one worker of this node's owner."""
        rights = InvitationTerms(
            roles=ROLES["worker"],
            owner=self._node.owner,
            valid_for_s=INVITED_S + terms.time_limit_s + MEMBER_S,
        )
        return await self._desk.invite(
            rights, uses=1, ttl_s=INVITED_S, addresses=self.addresses()
        )

    def addresses(self) -> tuple[str, ...]:
        """Return where pilots can join; raise if that is nowhere."""
        self._network.expect_company()
        addresses = self._network.doors
        if not addresses:
            raise ShoalError(
                "pilots could not join this node",
                because="it listens nowhere",
                hint="restart it with --listen HOST:PORT, that other machines reach",
            )
        return addresses

    async def _poll(self, effect: PollPilots) -> None:
        terms, prefix = effect.terms, self._prefix(effect.terms)
        try:
            jobs = await self._engine(terms).jobs(prefix)
        except ShoalError as error:
            told = PilotsPolled(terms.name, effect.poll, trouble=str(error))
            self._node.feed(told)
            return
        seen = tuple(
            SeenPilot(int(digits), job.native, job.running)
            for job in jobs
            if (digits := job.name.removeprefix(prefix)).isdecimal()
        )
        self._node.feed(PilotsPolled(terms.name, effect.poll, seen))

    async def _cancel(self, effect: CancelPilot) -> None:
        # If it fails, the next poll names it still, and it is cancelled again.
        with contextlib.suppress(ShoalError):
            await self._engine(effect.terms).cancel(effect.native)

    def _engine(self, terms: AllocationTerms) -> LendingEngine:
        engine = self.engines.get(terms.engine)
        if engine is None:
            raise UsageError(
                f"'{terms.engine}' is no engine",
                because=f"engines: {', '.join(self.engines)}",
                hint="write it like `shoal alloc add slurm -- -p PARTITION`",
            )
        return engine

    def _prefix(self, terms: AllocationTerms) -> str:
        """Return how the jobs of an allocation of this node are called."""
        return f"shoal-{self._node.id[-8:]}-{terms.name}-"

    def _job_name(self, terms: AllocationTerms, number: int) -> str:
        return f"{self._prefix(terms)}{number}"
