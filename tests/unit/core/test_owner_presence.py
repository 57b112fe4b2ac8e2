"""Whether the owner of a machine uses it."""

import math

import pytest

from shoal.core.lending.events import OwnerObserved
from shoal.core.lending.lend_rule import LendRule
from shoal.core.lending.owner_presence import USED, OwnerPresence

AWAY_S = 10.0


@pytest.mark.parametrize("now", [0.1, 35.9, 1e4 / 3, 1e9 / 7])
def test_an_owner_is_there_to_the_last_bit_of_the_time(now: float) -> None:
    presence = OwnerPresence(LendRule(idle_s=AWAY_S, calm=True))
    almost_s = math.nextafter(AWAY_S, 0.0)

    presence.observed(OwnerObserved(input_idle_s=almost_s), now)
    assert presence.reason == USED

    presence.observed(OwnerObserved(input_idle_s=AWAY_S), now + (AWAY_S - almost_s))
    assert presence.is_lent
