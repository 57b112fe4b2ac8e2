"""Who gets which pieces, how trees are fetched, and who is named as another holder."""

from shoal.core.artifacts import piece_serving
from shoal.core.artifacts.blob_transfers import BlobTransfers
from shoal.core.artifacts.events import (
    AnswerFetch,
    BlobGivenOut,
    FetchDropped,
    PiecesOf,
    PiecesRead,
    PiecesStored,
    ReadPieces,
    ReadTree,
    StorePiece,
    TreeRead,
    TreeWanted,
)
from shoal.core.artifacts.piece_serving import (
    NOT_NAMED,
    QUESTIONS_ALL_MAX,
    QUESTIONS_MAX,
    READS_MAX,
)
from shoal.core.artifacts.tree_fetch import AGAIN_S
from shoal.core.discovery.events import LearnAddresses
from shoal.core.events import (
    DeadlineReached,
    Effect,
    MessageReceived,
    PeerLost,
    Send,
)
from shoal.core.membership.roster import Roster
from shoal.model.ids import BlobId, NodeId, OwnerId
from shoal.protocol.blob_hashing import name_of_bytes
from shoal.protocol.blobs import BlobPiece, PieceRefusal, PieceWanted
from shoal.protocol.messages import BlobHeld, PeerAddress
from shoal.sim.node import trust

US, OTTER, HERON = NodeId("us"), NodeId("otter"), NodeId("heron")
TREE, INSIDE, OUTSIDE = (name_of_bytes(data) for data in (b"tree", b"in", b"out"))
FIRST = ((0, 0),)
NOTHING = BlobId("")


class Pier:
    """One machine, told facts at a time that only goes forward."""

    def __init__(self) -> None:
        self.now = 0.0
        self.roster = Roster(trust.members(), trust.WALL_AT_START_S)
        for peer in (OTTER, HERON):
            self.admit(peer)
        self.machine = BlobTransfers(US, self.roster, None)

    def admit(self, peer: NodeId) -> None:
        grant = trust.grant(peer, ("worker",), OwnerId("ann"))
        self.roster.meet(peer, grant, self.now)

    def tell(self, event: object) -> list[Effect]:
        return self.machine.handle(event, self.now)  # type: ignore[arg-type]

    def asks(
        self, peer: NodeId, blob: BlobId, under: BlobId = NOTHING, count: int = 1
    ) -> list[Effect]:
        pieces = tuple((0, n) for n in range(count))
        wanted = PieceWanted(blob=blob, pieces=pieces, under=under)
        return self.tell(MessageReceived(peer, wanted))


def refusals(effects: list[Effect]) -> list[str]:
    sent = [effect.message for effect in effects if isinstance(effect, Send)]
    return [each.reason for each in sent if isinstance(each, PieceRefusal)]


def reads(effects: list[Effect]) -> list[NodeId]:
    return [effect.peer for effect in effects if isinstance(effect, ReadPieces)]


def test_a_tree_and_its_files_are_for_those_who_know_the_tree() -> None:
    pier = Pier()

    assert pier.asks(OTTER, INSIDE, TREE) == [ReadTree(0, TREE)]
    assert reads(pier.tell(TreeRead(0, TREE, (INSIDE,)))) == [OTTER]
    assert reads(pier.asks(HERON, TREE)) == [HERON]
    pier.admit(NodeId("eel"))
    assert refusals(pier.asks(NodeId("eel"), OUTSIDE, TREE)) == [NOT_NAMED]


def test_a_file_by_itself_is_for_nobody() -> None:
    pier = Pier()

    assert pier.asks(OTTER, INSIDE) == [ReadTree(0, INSIDE)]
    told = TreeRead(0, INSIDE, reason="not a tree")

    assert refusals(pier.tell(told)) == [NOT_NAMED]


def test_what_a_task_gave_out_is_for_all_who_know_its_name() -> None:
    pier = Pier()
    pier.tell(BlobGivenOut(INSIDE))

    assert reads(pier.asks(OTTER, INSIDE)) == [OTTER]


def test_what_was_read_is_sent_piece_by_piece_or_refused() -> None:
    pier = Pier()
    pier.tell(BlobGivenOut(INSIDE))
    pier.asks(OTTER, INSIDE)
    found = (PiecesOf(INSIDE, ((0, 0, b"in"),)), PiecesOf(OUTSIDE, reason="gone"))

    effects = pier.tell(PiecesRead(OTTER, found))

    piece = BlobPiece(blob=INSIDE, level=0, index=0, data=b"in")
    assert effects == [
        Send(OTTER, piece),
        Send(OTTER, PieceRefusal(blob=OUTSIDE, reason="gone")),
    ]
    assert pier.machine.serving.bytes_served == 2


def test_who_is_revoked_while_the_disk_reads_gets_nothing() -> None:
    pier = Pier()
    pier.tell(BlobGivenOut(INSIDE))
    pier.asks(OTTER, INSIDE)
    pier.asks(OTTER, INSIDE)
    pier.roster.revoke(trust.revocation(OTTER, 10**12))

    effects = pier.tell(PiecesRead(OTTER, (PiecesOf(INSIDE, ((0, 0, b"in"),)),)))

    assert effects == []
    assert pier.machine.serving.questions == 0


def test_what_is_read_for_a_link_that_broke_is_not_sent_over_the_next() -> None:
    pier = Pier()
    pier.tell(BlobGivenOut(INSIDE))
    pier.asks(OTTER, INSIDE)
    pier.tell(PeerLost(OTTER))
    assert pier.asks(OTTER, INSIDE) == [], "one read of a peer at a time"

    effects = pier.tell(PiecesRead(OTTER, (PiecesOf(INSIDE, ((0, 0, b"in"),)),)))

    assert reads(effects) == [OTTER]
    assert len(effects) == 1


def test_few_reads_go_on_at_a_time_and_peers_take_turns() -> None:
    pier = Pier()
    pier.tell(BlobGivenOut(INSIDE))
    crowd = [NodeId(f"n{n}") for n in range(READS_MAX + 2)]
    for peer in crowd:
        pier.admit(peer)

    began = [peer for each in crowd for peer in reads(pier.asks(each, INSIDE))]
    pier.asks(crowd[0], INSIDE)
    followed = reads(pier.tell(PiecesRead(crowd[0], ())))

    assert began == crowd[:READS_MAX]
    assert followed == [crowd[READS_MAX]]
    assert pier.machine.serving.reads == READS_MAX


def test_questions_are_read_together_up_to_a_number_of_pieces() -> None:
    pier = Pier()
    pier.tell(BlobGivenOut(INSIDE))
    pier.asks(OTTER, INSIDE)
    for _ in range(5):
        pier.asks(OTTER, INSIDE, count=20)

    [read] = pier.tell(PiecesRead(OTTER, ()))

    assert isinstance(read, ReadPieces)
    assert sum(len(each.pieces) for each in read.wanted) == 60
    assert piece_serving.PIECES_AT_ONCE >= 60


def test_questions_beyond_a_bound_are_dropped() -> None:
    pier = Pier()
    pier.tell(BlobGivenOut(INSIDE))
    for _ in range(QUESTIONS_MAX + 5):
        pier.asks(OTTER, INSIDE)
    serving = pier.machine.serving

    assert serving.questions == QUESTIONS_MAX
    assert serving.counts["questions dropped"] == 4  # The first is being read.
    for n in range(2 * QUESTIONS_ALL_MAX // QUESTIONS_MAX):
        pier.admit(NodeId(f"n{n}"))
        for _ in range(QUESTIONS_MAX):
            pier.asks(NodeId(f"n{n}"), INSIDE)
    assert serving.questions == QUESTIONS_ALL_MAX


def fetch_tree(pier: Pier, tries: int = 1) -> list[Effect]:
    """Want a tree of one file; return what is done once the tree is here."""
    asked = pier.tell(TreeWanted(7, TREE, (OTTER,), tries))
    assert asked == [ReadTree(7, TREE)]
    pier.tell(TreeRead(7, TREE, is_here=False, reason="it is not held here"))
    piece = BlobPiece(blob=TREE, level=0, index=0, data=b"tree")
    [store] = pier.tell(MessageReceived(OTTER, piece))
    assert isinstance(store, StorePiece)
    assert pier.tell(PiecesStored(store.fetch, (0,))) == [ReadTree(7, TREE)]
    return pier.tell(TreeRead(7, TREE, (INSIDE,), (INSIDE,)))


def test_a_tree_is_fetched_and_then_its_files_and_its_source_is_told() -> None:
    pier = Pier()
    [ask] = fetch_tree(pier)
    wanted = PieceWanted(blob=INSIDE, pieces=FIRST, under=TREE)
    assert ask == Send(OTTER, wanted)

    piece = BlobPiece(blob=INSIDE, level=0, index=0, data=b"in")
    [store] = pier.tell(MessageReceived(OTTER, piece))
    assert isinstance(store, StorePiece)

    assert pier.tell(PiecesStored(store.fetch, (0,))) == [
        Send(OTTER, BlobHeld(blob=TREE)),
        AnswerFetch(7),
    ]


def test_a_tree_is_tried_again_after_a_while_if_it_may_be() -> None:
    pier = Pier()
    fetch_tree(pier, tries=2)
    refusal = MessageReceived(OTTER, PieceRefusal(blob=INSIDE, reason="gone"))

    assert pier.tell(refusal) == []
    pier.now = AGAIN_S
    assert pier.machine.next_deadline() == AGAIN_S
    assert pier.tell(DeadlineReached()) == [ReadTree(7, TREE)]
    pier.tell(TreeRead(7, TREE, (INSIDE,), (INSIDE,)))

    assert pier.tell(refusal) == [AnswerFetch(7, "otter: gone")]


def test_a_tree_that_is_wanted_no_more_ends_all_its_fetches() -> None:
    pier = Pier()
    fetch_tree(pier)

    pier.tell(FetchDropped(7))

    assert len(pier.machine.fetching) == 0
    assert pier.machine.next_deadline() is None


def test_only_whom_we_asked_may_name_others_and_those_are_asked_too() -> None:
    pier = Pier()
    fetch_tree(pier)
    eel = PeerAddress(NodeId("eel"), ("/at/eel",))
    held = BlobHeld(blob=TREE, holders=(eel, PeerAddress(US, ("/at/us",))))

    assert pier.tell(MessageReceived(HERON, held)) == []
    assert pier.tell(MessageReceived(OTTER, held)) == [
        LearnAddresses(eel.node, eel.addresses)
    ]
    assert pier.tell(MessageReceived(OTTER, held)) == [], "no news"
    refusal = PieceRefusal(blob=INSIDE, reason="gone")
    [ask] = pier.tell(MessageReceived(OTTER, refusal))
    assert isinstance(ask, Send)
    assert ask.peer == eel.node


def test_holders_are_told_to_others_and_not_to_themselves() -> None:
    pier = Pier()
    pier.machine.holders._where = lambda node: "" if node == "hidden" else f"/at/{node}"
    pier.tell(TreeRead(0, TREE, (INSIDE,)))
    for peer in (OTTER, NodeId("hidden"), HERON):
        pier.tell(MessageReceived(peer, BlobHeld(blob=TREE)))
        pier.tell(MessageReceived(peer, BlobHeld(blob=OUTSIDE)))

    named = [
        effect.message
        for effect in pier.asks(HERON, TREE)
        if isinstance(effect, Send) and isinstance(effect.message, BlobHeld)
    ]

    assert named == [BlobHeld(blob=TREE, holders=(PeerAddress(OTTER, ("/at/otter",)),))]
    assert pier.machine.holders.besides(HERON, OUTSIDE) == (), "it is no tree of ours"
