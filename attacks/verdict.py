"""What an attack is, and how it says that it succeeded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from attacks.reef import Reef

Who = Literal["stranger", "member", "worker", "task"]
State = Literal["held", "BROKEN", "unclear"]
"""Unclear: the attack itself went wrong, and so proves nothing."""


class Broken(Exception):  # noqa: N818 - It is a finding, and no error of ours.
    """A promise does not hold; the text says what was seen."""


class Attack(NamedTuple):
    """One attempt to break one promise."""

    who: Who
    name: str
    promise: str
    run: Callable[[Reef], str]  # returns what was seen, or raises `Broken`


class Verdict(NamedTuple):
    """How an attack ended."""

    attack: Attack
    state: State
    seen: str
    seconds: float


ATTACKS: list[Attack] = []


def attack(who: Who, promise: str) -> Callable[[Callable[[Reef], str]], None]:
    """Register a function as an attack; its name is that of the attack."""

    def register(run: Callable[[Reef], str]) -> None:
        ATTACKS.append(Attack(who, run.__name__.replace("_", " "), promise, run))

    return register


def must(held: bool, seen: str) -> None:
    """Say that the attack has succeeded, unless the promise held."""
    if not held:
        raise Broken(seen)
