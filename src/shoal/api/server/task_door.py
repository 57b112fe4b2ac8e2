"""Serves the API to tasks, each over a channel from the worker that runs it.

A task acts for the owner of its job, as far as jobs that descend from it are concerned.
`METHODS` is all that it may call: nothing there concerns other jobs, members, machines
or secrets. `core.channels` decides which tasks get this far, and for how long;
`core.scheduling.children` what the jobs of a task may have.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from typing import TYPE_CHECKING, Final, final

from shoal.api.server.socket_server import serve_call
from shoal.api.service.audited import Origin, refused
from shoal.api.service.callers import Caller, answer_for
from shoal.errors import NotAllowedError
from shoal.framing import FramingError
from shoal.runtime.background_tasks import BackgroundTasks
from shoal.runtime.channels.task_api import SocketEnd

if TYPE_CHECKING:
    from shoal.api.service.service import Service
    from shoal.core.membership.members import Admission
    from shoal.protocol.channels.messages import ChannelOpen
    from shoal.runtime.channels.channel_ends import ChannelLine

METHODS: Final = frozenset(
    {"Info", "Nodes", "Submit", "Plan", "Get", "List", "Watch", "Logs", "Cancel"}
    | {"Explain", "Curves", "Outputs", "Calls"}
    | {"MissingBlobs", "PutBlobs", "GetBlobs"}
)
"""What a task may call."""


@final
class TaskDoor:
    """Answers tasks as far as they may ask."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._serving = BackgroundTasks()

    def open(self) -> None:
        """Serve the channels of tasks from now on."""
        self._service.channels.serve_api = self.serve

    async def close(self) -> None:
        """End all calls."""
        self._service.channels.serve_api = None
        await self._serving.close()

    def serve(
        self, line: ChannelLine, worker: Admission, asked: ChannelOpen
    ) -> SocketEnd:
        """Serve one channel, which carries one call."""
        assert asked.attempt is not None
        near, far = socket.socketpair()
        caller = Caller(
            way="task",
            node=worker.node,
            owner=worker.owner,  # That of the job: the machine has seen to it.
            is_own=False,
            parent=asked.attempt,
        )
        answering = self._serving.start(self._answer(near, caller))

        def closed() -> None:
            answering.cancel()

        return SocketEnd(line, far, closed)

    async def _answer(self, connection: socket.socket, caller: Caller) -> None:
        answer_for(caller)
        reader, writer = await asyncio.open_connection(sock=connection)
        check = functools.partial(self._check, caller)
        try:
            await serve_call(self._service.methods, reader, writer, check)
        except (OSError, FramingError):
            pass  # The task has gone, or talks nonsense.
        finally:
            writer.close()

    def _check(self, caller: Caller, method: str) -> None:
        if method in METHODS:
            return
        error = NotAllowedError(
            f"a task may not call {method[:80]}",
            because="it may submit jobs, and ask about those; nothing else is its own",
            hint="do that outside of the task, as the owner",
        )
        place = Origin(way=caller.way, node=caller.node, owner=caller.owner or "")
        refused(self._service.audit.note, method[:80], place, str(error))
        raise error
