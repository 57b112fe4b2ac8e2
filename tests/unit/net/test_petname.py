from shoal.model.ids import NodeId
from shoal.net.identity.identity import Identity
from shoal.net.identity.petname import ADJECTIVES, ANIMALS, CHECKS, petname


def test_a_petname_never_changes() -> None:
    assert petname(Identity.from_seed(bytes(32)).node) == "light-bear-61"


def test_no_word_is_there_twice() -> None:
    assert len(set(ADJECTIVES)) == len(ADJECTIVES) == 128
    assert len(set(ANIMALS)) == len(ANIMALS) == 128


def test_words_are_short_and_plain() -> None:
    words = ADJECTIVES + ANIMALS

    assert all(word.isascii() and word.isalpha() for word in words)
    assert all(3 <= len(word) <= 9 for word in words)


def test_ten_thousand_nodes_share_few_names() -> None:
    names = [petname(NodeId(f"node-{n}")) for n in range(10_000)]

    shared = len(names) - len(set(names))

    # Half of n * n over the number of names are expected: 30.
    assert len(ADJECTIVES) * len(ANIMALS) * CHECKS == 1_638_400
    assert shared < 60
