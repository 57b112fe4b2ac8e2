"""Wrong secrets are limited by where they come from."""

from shoal.core.admission.guess_limits import ORIGINS_MAX, WRONG_BURST, GuessLimits
from shoal.net.direct.connection_limits import origin_of

HERE, THERE = "10.0.0.7", "10.0.0.8"


def test_who_guesses_too_often_must_wait_and_nobody_else() -> None:
    guesses = GuessLimits()
    tries = 0
    while guesses.may(HERE, 0.0):
        guesses.wrong(HERE, 0.0)
        tries += 1

    assert tries == WRONG_BURST
    assert guesses.may(THERE, 0.0)
    assert not guesses.may(HERE, 9.0)
    assert guesses.may(HERE, 11.0)


def test_a_day_of_guessing_makes_some_thousands_and_no_more() -> None:
    guesses = GuessLimits()
    tries = 0
    for second in range(86_400):
        if guesses.may(HERE, float(second)):
            guesses.wrong(HERE, float(second))
            tries += 1

    assert tries <= 8_650


def test_addresses_of_one_network_of_ipv6_count_as_one() -> None:
    guesses = GuessLimits()
    for n in range(10):
        guesses.wrong(origin_of(f"2001:db8::{n:x}"), 0.0)

    assert not guesses.may(origin_of("2001:db8::ffff"), 0.0)


def test_what_is_kept_is_bounded() -> None:
    guesses = GuessLimits()
    for n in range(3 * ORIGINS_MAX):
        guesses.wrong(f"10.{n // 65536}.{n // 256 % 256}.{n % 256}", 0.0)

    assert len(guesses._origins) == ORIGINS_MAX  # pyright: ignore[reportPrivateUsage]
