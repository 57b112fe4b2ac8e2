"""Peers of a pipeline go on from the newest step of which all layers are there."""

from pathlib import Path

import torch
from torch import nn

from shoal.train.gangs.layer_states import LayerStates, Whole, newest_whole


def test_the_newest_step_with_all_layers_counts() -> None:
    held = [{10: [0, 1], 20: [0, 1]}, {10: [2]}]

    assert newest_whole(held, 3) == Whole(10, (0, 0, 1))
    assert newest_whole([{20: [0, 1]}, {20: [2]}], 3) == Whole(20, (0, 0, 1))


def test_without_all_layers_everything_begins_anew() -> None:
    assert newest_whole([{20: [0, 1]}, {10: [2]}], 3) == Whole(0, ())
    assert newest_whole([{}, {}], 1) == Whole(0, ())


def test_who_comes_back_goes_on_from_the_checkpoint_before_a_broken_one(
    tmp_path: Path,
) -> None:
    def peer() -> tuple[dict[int, nn.Module], LayerStates]:
        layers = dict[int, nn.Module](
            {0: nn.Linear(2, 2), 1: nn.Tanh(), 2: nn.Linear(2, 2)}
        )
        make = lambda weights: torch.optim.AdamW(weights, lr=0.1)  # noqa: E731
        return layers, LayerStates(layers, make, tmp_path)

    def through(layers: dict[int, nn.Module]) -> torch.Tensor:
        found: torch.Tensor = nn.Sequential(*layers.values())(torch.ones(2))
        return found

    torch.manual_seed(3)
    before, states = peer()
    for step in (1, 2, 3):
        states.zero_grad()
        torch.autograd.backward(through(before).sum())
        states.step()
        states.save(step)
    (tmp_path / "state.pt").write_bytes(b"half")  # It died while it wrote.
    after, again = peer()

    assert again.resume(rank=0, world=1, layers=3) == 2
    assert not torch.equal(through(after), through(before))
    again.zero_grad()
    torch.autograd.backward(through(after).sum())
    again.step()

    torch.testing.assert_close(through(after), through(before))
