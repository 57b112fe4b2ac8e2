import pytest

from shoal.errors import UsageError
from shoal.model.ids import NodeId
from shoal.net.identity.identity import Identity
from shoal.runtime.artifacts.sealing import seal, unseal

OTTER, HERON = Identity.generate(), Identity.generate()


def test_only_the_node_it_was_sealed_to_opens_it() -> None:
    sealed = seal(OTTER.node, "for t1", b"hunter2")

    assert unseal(OTTER, "for t1", sealed) == b"hunter2"
    assert unseal(HERON, "for t1", sealed) is None
    assert unseal(OTTER, "for t2", sealed) is None


def test_no_change_of_what_was_sealed_goes_unnoticed() -> None:
    sealed = seal(OTTER.node, "", b"hunter2")

    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        assert unseal(OTTER, "", bytes(changed)) is None
    assert unseal(OTTER, "", sealed[:20]) is None
    assert unseal(OTTER, "", bytes(48)) is None, "a key of small order"


def test_the_same_twice_does_not_look_the_same() -> None:
    assert seal(OTTER.node, "", b"x") != seal(OTTER.node, "", b"x")


def test_the_key_that_is_sealed_to_is_the_one_that_opens() -> None:
    for _ in range(20):
        identity = Identity.generate()
        assert unseal(identity, "", seal(identity.node, "", b"x")) == b"x"


def test_nothing_is_sealed_to_what_is_no_node() -> None:
    with pytest.raises(UsageError):
        seal(NodeId("nobody"), "", b"x")
