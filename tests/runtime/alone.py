"""A network that reaches nobody, for a node that is a shoal of its own."""

from collections.abc import Sequence

from shoal.model.ids import NodeId
from shoal.protocol.messages import AnyMessage


class Alone:
    """Links and a finder without any peer; what is sent is remembered."""

    def __init__(self) -> None:
        self.sent: list[tuple[NodeId, AnyMessage]] = []

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return no address: nobody dials."""
        return ()

    def know(self, peer: NodeId, addresses: Sequence[str]) -> None:
        """Forget it at once."""

    def trouble(self, peer: NodeId) -> str:
        """Know of none."""
        return ""

    def send(self, peer: NodeId, message: AnyMessage) -> None:
        """Remember what nobody gets."""
        self.sent.append((peer, message))

    def disconnect(self, peer: NodeId, reason: str) -> None:
        """Cut nothing."""

    def publish(self, message: AnyMessage) -> None:
        """Tell nobody."""

    def spread(self, message: AnyMessage) -> None:
        """Tell nobody."""

    def look_up(self, lookup: int, key: str, limit: int) -> None:
        """Find nothing."""

    def provide(self, keys: Sequence[str]) -> None:
        """Provide to nobody."""

    async def close(self) -> None:
        """Leave nothing."""
