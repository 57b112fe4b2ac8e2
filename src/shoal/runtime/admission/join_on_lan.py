"""Let a lone node find a shoal on the local network and ask to join it.

The node's own shoal keeps running, and stays if nobody admits the node. Any machine on
the network can claim to have a shoal, so a person at each screen must agree after
comparing the code. States: looking, asking, accepted by the other side, joined, or
over. Nothing is joined unless both decide within `PATIENCE_S`.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import time
from typing import TYPE_CHECKING, Final, Literal, final

from shoal.core.admission.join_requests import JoinAttempt
from shoal.errors import ShoalError
from shoal.model.ids import RequestId
from shoal.net.identity.petname import petname
from shoal.net.joining.join import knock
from shoal.net.joining.join_codes import code_of
from shoal.protocol.admission import AdmissionHeard
from shoal.protocol.admission_proofs import NONCE_BYTES
from shoal.protocol.messages import Refusal, Welcome
from shoal.runtime.admission.join_by_invitation import belonging
from shoal.runtime.membership import shoal_membership

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.net.identity.identity import Identity
    from shoal.net.joining.lan_discovery import Near
    from shoal.runtime.home import Home
    from shoal.runtime.membership.shoal_membership import ShoalMembership

LOOK_S: Final = 1.0
LOOKS_MAX: Final = 15
AGAIN_S: Final = 1.0
PATIENCE_S: Final = 600.0
"""How long to ask before giving up; a person may have to walk over."""

State = Literal["looking", "asking", "accepted", "joined", "over"]


@final
class LanJoin:
    """Finds a shoal, asks, and awaits both people; sets `joined` on success."""

    def __init__(
        self,
        home: Home,
        identity: Identity,
        *,
        has: str,
        is_free: Callable[[], bool],
        say: Callable[[str], None],
        consents: bool,
    ) -> None:
        """Prepare to ask for this node; `has` describes what it lends.

        `is_free` tells whether its own shoal is still empty. If the user `consents`
        in advance, the user is not asked again.
        """
        self.state: State = "looking"
        self.near: Near | None = None
        self.code = ""
        self.joined = asyncio.Event()
        self._home = home
        self._identity = identity
        self._has = has
        self._is_free = is_free
        self._say = say
        self._agreed = asyncio.Event()
        if consents:
            self._agreed.set()

    def agree(self) -> None:
        """Note that the local user wants to join."""
        self._agreed.set()

    async def run(self) -> None:
        """Look for a shoal and try to join it; return when it is decided."""
        try:
            self.near = near = await self._look()
            if near is None:
                return
            where = near.addresses[0].split("/")[2]
            name = petname(near.node)
            self._say(f'found shoal "{near.shoal}" near you: {name} ({where})')
            async with asyncio.timeout(PATIENCE_S):
                welcome = await self._ask(near)
                belongs = belonging(welcome, near.shoal, self._identity, near.addresses)
                await self._wait_for_consent(near)
            self._move(belongs)
        except TimeoutError:
            self._say(f"not joined: nobody decided within {PATIENCE_S / 60:g} minutes")
        except (ShoalError, OSError) as error:
            self._say(f"not joined: {error}")
        finally:
            if self.state != "joined":
                self.state = "over"

    async def _look(self) -> Near | None:
        """Return the only shoal nearby; None if there is none or several."""
        try:
            from shoal.net.joining.lan_discovery import Search  # noqa: PLC0415 - Slow to import.
        except ImportError:
            return None  # Needs the libp2p extra.
        search = Search()
        try:
            await asyncio.to_thread(search.start)
            for _ in range(LOOKS_MAX):
                await asyncio.sleep(LOOK_S)
                if found := [
                    n for n in search.found() if n.node != self._identity.node
                ]:
                    break
            else:
                return None
            await asyncio.sleep(LOOK_S)  # There may be others.
            found = [n for n in search.found() if n.node != self._identity.node]
        except Exception:  # noqa: BLE001 - Zeroconf raises what it likes; we do without.
            return None
        finally:
            await asyncio.to_thread(search.close)
        if len({near.shoal for near in found}) == 1:
            return found[0]
        names = ", ".join(sorted({f'"{near.shoal}"' for near in found}))
        self._say(f"shoals near you: {names}; join one by an invitation")
        return None

    async def _ask(self, near: Near) -> Welcome:
        """Ask until the answer is final; raise if it is a refusal."""
        own, host = self._identity.node, near.node
        attempt = JoinAttempt(
            own, host, functools.partial(secrets.token_bytes, NONCE_BYTES), self._has
        )
        request = RequestId(f"{own}/admission")
        while True:
            try:
                answer = await knock(self._identity, near, attempt.wanted(request))
            except (ShoalError, OSError):
                await asyncio.sleep(AGAIN_S)  # It may come back.
                continue
            final_answer = attempt.hear(answer)
            if isinstance(final_answer, Welcome):
                return final_answer
            if isinstance(final_answer, Refusal):
                raise ShoalError(
                    f"{petname(host)} refused", because=final_answer.reason
                )
            if isinstance(answer, AdmissionHeard):
                self._show(code_of(own, host, attempt.ours, attempt.theirs))
            else:
                await asyncio.sleep(AGAIN_S)

    def _show(self, code: str) -> None:
        if self.state != "asking":
            self._say("asked to join; `shoal accept` on the other machine lets you in")
        if code != self.code:
            self._say(f"type this code there:  {code}")
        self.code, self.state = code, "asking"

    async def _wait_for_consent(self, near: Near) -> None:
        self.state = "accepted"
        if not self._agreed.is_set():
            self._say(f"{petname(near.node)} lets you in; `shoal accept` here joins")
        await self._agreed.wait()

    def _move(self, belongs: ShoalMembership) -> None:
        if not self._is_free():
            raise ShoalError(
                "this node has its own jobs or members by now",
                hint="`shoal down`, then `shoal join` by an invitation",
            )
        admitted = belongs.members().admit(
            self._identity.node, belongs.grant, time.time()
        )
        if isinstance(admitted, str):
            raise ShoalError("the grant does not hold", because=admitted)
        shoal_membership.save(self._home, belongs)
        self._say(f'joined "{belongs.shoal}"')
        self.state = "joined"
        self.joined.set()
