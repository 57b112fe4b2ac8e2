"""Whole DiLoCo runs without a centre, in one process: real threads and files."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.runtime.test_train_session import (
    Garbage,
    Loop,
    Rolling,
    lines_of,
    run_all,
    settings,
)

from shoal.train import tensors
from shoal.train.settings import TrainSettings


def three(**changes: object) -> TrainSettings:
    """Return the settings of three workers who close each round together."""
    return settings(rounds=5, workers=3, quorum=3, **changes)


def loops() -> tuple[Loop, ...]:
    return Loop(target=7.0), Loop(target=1.0, samples=30), Loop(target=-2.0)


@pytest.mark.parametrize("average", ["mean", "median"])
@pytest.mark.parametrize("compress", ["float32", "float16"])
def test_the_weights_are_to_the_bit_those_that_a_centre_comes_to(
    tmp_path: Path, compress: str, average: str
) -> None:
    found: dict[str, list[float]] = {}
    for reduce in ("central", "shared"):
        folder = tmp_path / reduce
        folder.mkdir()
        chosen = three(compress=compress, average=average, reduce=reduce)
        final, _ = run_all(folder, chosen, *loops())
        found[reduce] = final.tolist()

    assert found["shared"] == found["central"]


def test_no_delta_and_no_update_passes_the_coordinator(tmp_path: Path) -> None:
    _, curves = run_all(tmp_path, three(reduce="shared"), *loops())

    [sent] = lines_of(curves, "sent")
    kinds = sent["bytes_sent_by_kind"]
    state = (tmp_path / "out" / "state.safetensors").stat().st_size
    assert kinds["contributions"] > 0
    assert kinds["updates"] > 0
    assert kinds["checkpoints"] < state + 500  # Once, at the end, and its manifest.
    assert [line["round"] for line in lines_of(curves, "round")] == [1, 2, 3, 4, 5]


def test_a_run_that_is_resumed_goes_on_with_the_momentum_of_all_shares(
    tmp_path: Path,
) -> None:
    whole, first, second = (tmp_path / name for name in ("whole", "first", "second"))
    for folder in (whole, first, second):
        folder.mkdir()
    chosen = {"workers": 3, "quorum": 3, "reduce": "shared", "compress": "float32"}
    undisturbed, _ = run_all(whole, settings(rounds=6, **chosen), *loops())
    run_all(first, settings(rounds=3, **chosen), *loops())
    left = first / "out" / "state.safetensors"
    assert tensors.load_state(left, 1).momentum.any()
    left.rename(second / "before.safetensors")

    again = settings(rounds=6, resume="before.safetensors", **chosen)
    final, curves = run_all(second, again, *loops())

    assert [line["round"] for line in lines_of(curves, "round")] == [4, 5, 6]
    np.testing.assert_allclose(final, undisturbed, rtol=1e-5)


def test_without_a_centre_what_a_loop_keeps_is_saved_too(tmp_path: Path) -> None:
    rolling = [Rolling(target) for target in (3.0, 4.0, 5.0)]

    run_all(tmp_path, three(reduce="shared"), *rolling)

    assert "inner" in load_file(tmp_path / "out" / "state.safetensors")


def test_an_owner_that_gives_garbage_out_is_relieved_and_the_run_goes_on(
    tmp_path: Path,
) -> None:
    honest = (Loop(target=7.0), Loop(target=1.0), Loop(target=-2.0))
    chosen = settings(rounds=5, workers=4, quorum=3, reduce="shared")

    final, curves = run_all(tmp_path, chosen, *honest, Garbage(target=900.0))

    assert np.isfinite(final).all()
    assert np.abs(final).max() < 10.0
    assert [line["round"] for line in lines_of(curves, "round")][-1] == 5
    [relieved] = lines_of(curves, "relieved")
    assert relieved["worker"] == "train.3"
    assert "cannot merge" in relieved["reason"]
    assert {line["worker"] for line in lines_of(curves, "refused")} == {"train.3"}
