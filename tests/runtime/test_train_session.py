"""Whole DiLoCo runs in one process: real threads, files and weights."""

import json
import shutil
import threading
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file

from shoal.errors import ShoalError, UsageError
from shoal.train import tensors
from shoal.train.diloco import messages
from shoal.train.diloco.aggregator import Aggregator
from shoal.train.diloco.compression import Array
from shoal.train.diloco.curves import RunCurves
from shoal.train.diloco.session import DilocoSession
from shoal.train.diloco.shares.messages import decode_from_worker
from shoal.train.exchange import Exchange, FolderExchange
from shoal.train.settings import TrainSettings, settings_of
from shoal.train.weights import ArrayWeights

START = np.array([1.0, -2.0, 3.0, 0.5], dtype=np.float32)


class Loop:
    """A training loop: each step goes some way towards its own target."""

    def __init__(self, target: float, samples: int = 10) -> None:
        self.weights = START.copy()
        self.target = np.float32(target)
        self.samples = samples
        self.steps = 0

    def step(self) -> None:
        self.weights += np.float32(0.1) * (self.target - self.weights)
        self.steps += 1


def run_all(
    folder: Path, settings: TrainSettings, *loops: "Loop | Reader", epoch: int = 1
) -> tuple[Array, str]:
    """Run an aggregator and a worker for each loop; return the weights and curves."""
    out = StringIO()
    exchange = FolderExchange(folder, "aggregate.0")
    curves = RunCurves(settings, out)
    aggregator = Aggregator(exchange, settings, epoch, folder, curves)
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - The test shows it.
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def work(number: int, loop: "Loop | Reader") -> None:
        own = FolderExchange(folder, f"train.{number}")
        with DilocoSession(
            cast("Exchange", GarbageExchange(own))
            if isinstance(loop, Garbage)
            else own,
            settings,
            life=epoch,
            weights=ArrayWeights({"w": loop.weights}),
            inner=loop if isinstance(loop, Rolling) else None,
        ) as run:
            while not run.finished:
                loop.step()
                loss = float(loop.weights.mean())
                run.step(samples=loop.samples, loss=loss, tokens=loop.samples * 7)
        assert not [each for each in run._threads if each.is_alive()]

    threads = [guarded(aggregator.run)]
    for number, loop in enumerate(loops):
        threads.append(guarded(lambda n=number, each=loop: work(n, each)))  # type: ignore[misc]
    for thread in threads:
        thread.join(timeout=60)
    for error in errors:
        raise error
    assert aggregator.machine.phase == "finished"
    return load_file(folder / "out" / "model.safetensors")["w"], out.getvalue()


def lines_of(curves: str, event: str) -> list[dict[str, Any]]:
    """Return the lines of one kind; all of them must be JSON as others read it."""

    def refuse(name: str) -> NoReturn:
        raise AssertionError(f"{name} is no JSON")

    lines = [json.loads(text, parse_constant=refuse) for text in curves.splitlines()]
    return [line for line in lines if line["event"] == event]


def settings(**changes: object) -> TrainSettings:
    return settings_of({"rounds": 3, "inner_steps": 4, "balance": False, **changes})


def test_one_worker_and_plain_sgd_of_rate_one_is_the_loop_itself(
    tmp_path: Path,
) -> None:
    alone = Loop(target=7.0)
    for _ in range(12):
        alone.step()
    plain = settings(
        rounds=12, inner_steps=1, outer="sgd", outer_lr=1.0, compress="float32"
    )

    final, _ = run_all(tmp_path, plain, Loop(target=7.0))

    np.testing.assert_allclose(final, alone.weights, rtol=1e-6)


def test_three_workers_are_averaged_by_their_samples(tmp_path: Path) -> None:
    loops = [Loop(20.0, samples=10), Loop(30.0, samples=20), Loop(40.0, samples=30)]
    plain = settings(
        rounds=1, workers=3, quorum=3, outer="sgd", outer_lr=1.0, compress="float32"
    )
    expected = np.zeros_like(START, dtype=np.float64)
    for loop in loops:
        one = Loop(float(loop.target))
        for _ in range(4):
            one.step()
        expected += one.weights * (loop.samples / 60)

    final, _ = run_all(tmp_path, plain, *loops)

    np.testing.assert_allclose(final, expected, rtol=1e-6)


class Slope(Loop):
    """A training loop whose steps are all the same, wherever it is."""

    def step(self) -> None:
        self.weights -= np.float32(0.1)
        self.steps += 1


@pytest.mark.parametrize("fragments", [1, 2])
def test_momentum_rises_with_the_rounds_of_each_fragment(
    tmp_path: Path, fragments: int
) -> None:
    chosen = settings(
        rounds=5, workers=2, quorum=2, compress="float32", fragments=fragments
    )
    steps = [4] * 5 if fragments == 1 else [2] + [4] * 4  # before the first one's syncs
    moved = momentum = 0.0
    for done, each in enumerate(steps):
        rate, kept = chosen.outer_rule().at(done, workers=2)
        momentum = kept * momentum + 0.1 * each
        moved += rate * (0.1 * each + kept * momentum)

    final, _ = run_all(tmp_path, chosen, Slope(target=0.0), Slope(target=0.0))

    np.testing.assert_allclose((START - final)[0], moved, rtol=1e-5)


@pytest.mark.parametrize("compress", ["float32", "float16", "int8"])
@pytest.mark.parametrize("fragments", [1, 2])
def test_workers_agree_at_the_end_whatever_is_sent(
    tmp_path: Path, compress: str, fragments: int
) -> None:
    loops = [Loop(target=2.0), Loop(target=4.0)]
    chosen = settings(
        rounds=10,
        workers=2,
        quorum=2,
        compress=compress,
        fragments=fragments,
        outer_momentum=0.5,
    )

    final, curves = run_all(tmp_path, chosen, *loops)

    assert curves.count('"event": "round"') == 10 * fragments
    assert np.abs(final - 3.0).max() < np.abs(START - 3.0).max()
    assert all(loop.steps == 40 for loop in loops)


def test_each_round_tells_who_did_how_much_and_what_was_sent(tmp_path: Path) -> None:
    loops = [Loop(2.0, samples=10), Loop(4.0, samples=30)]

    _, curves = run_all(tmp_path, settings(workers=2, quorum=2), *loops)

    lines = [json.loads(text) for text in curves.splitlines()]
    *_, last = (line for line in lines if line["event"] == "round")
    one, other = (last["by_worker"][name] for name in ("train.0", "train.1"))
    assert (one["samples"], other["samples"]) == (40, 120)
    assert (one["tokens"], other["tokens"]) == (280, 840)
    assert last["tokens_per_s"] == pytest.approx(7 * last["samples_per_s"])
    sent = lines_of(curves, "sent")[-1]["bytes_sent_by_kind"]
    assert sent["contributions"] == 3 * (one["bytes_sent"] + other["bytes_sent"]) > 0
    assert 0 < one["busy"] <= 1


class Reader:
    """Softmax regression on digits; each loop draws batches of its own."""

    def __init__(self, seed: int, batch: int) -> None:
        datasets = pytest.importorskip("sklearn.datasets")  # It takes a second.
        pictures, digits = datasets.load_digits(return_X_y=True)
        kept = np.arange(len(digits)) % 5 == 0
        self.x = (pictures[~kept] / 16).astype(np.float32)
        self.y = digits[~kept]
        self.x_kept = (pictures[kept] / 16).astype(np.float32)
        self.y_kept = digits[kept]
        self.weights = np.zeros((64, 10), dtype=np.float32)
        self.samples = batch
        self.target = np.float32(0)
        self.steps = 0
        self._rng = np.random.default_rng(seed)

    def step(self) -> None:
        rows = self._rng.integers(len(self.y), size=self.samples)
        chances = _softmax(self.x[rows] @ self.weights)
        chances[np.arange(self.samples), self.y[rows]] -= 1
        gradient = self.x[rows].T @ chances / self.samples
        self.weights -= np.float32(0.1) * gradient.astype(np.float32)
        self.steps += 1

    def loss(self, weights: Array) -> float:
        chances = _softmax(self.x_kept @ weights)
        right = chances[np.arange(len(self.y_kept)), self.y_kept]
        return float(-np.log(right).mean())


def _softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), dtype=np.float32)


def test_four_workers_learn_as_much_as_one_in_step_and_send_far_less(
    tmp_path: Path,
) -> None:
    rounds, inner_steps = 12, 50
    in_step = Reader(seed=0, batch=4 * 16)
    for _ in range(rounds * inner_steps):
        in_step.step()
    readers = [Reader(seed=number, batch=16) for number in range(1, 5)]
    chosen = settings(rounds=rounds, inner_steps=inner_steps, workers=4, quorum=4)

    final, curves = run_all(tmp_path, chosen, *readers)

    assert in_step.loss(final) < 1.03 * in_step.loss(in_step.weights)
    sent = lines_of(curves, "sent")[-1]["bytes_sent_by_kind"]
    in_all_reduce = 2 * (4 - 1) * 4 * final.size * rounds * inner_steps
    assert in_all_reduce / (sent["contributions"] + sent["updates"]) >= 50


class Patient(Loop):
    """A loop that begins its fifth round when the state of the fourth is kept."""

    def __init__(self, target: float, folder: Path) -> None:
        super().__init__(target)
        self._kept = folder / "checkpoint" / "state.safetensors"

    def step(self) -> None:
        while self.steps == 16 and not self._is_kept():
            time.sleep(0.01)
        super().step()

    def _is_kept(self) -> bool:
        return self._kept.exists() and tensors.progress_of(self._kept) == (4, 1)


def test_a_run_goes_on_though_everybody_was_gone_at_once(tmp_path: Path) -> None:
    chosen = settings(rounds=5, checkpoint_every=2, compress="float32")
    whole, _ = run_all(tmp_path / "whole", chosen, Loop(target=7.0))
    run_all(tmp_path / "parts", chosen, Patient(7.0, tmp_path / "parts"))
    shutil.rmtree(tmp_path / "parts" / "out")

    again = Loop(target=7.0)
    final, curves = run_all(tmp_path / "parts", chosen, again, epoch=2)

    np.testing.assert_array_equal(final, whole)
    assert again.steps == 4
    assert json.loads(curves.splitlines()[0])["kind"] == "checkpoint"


def test_a_finished_run_is_gone_on_with_for_more_rounds(tmp_path: Path) -> None:
    more = settings(rounds=6, compress="float32", outer_momentum=0.5)
    whole, _ = run_all(tmp_path / "whole", more, Loop(target=7.0))
    first = settings(rounds=4, compress="float32", outer_momentum=0.5)
    run_all(tmp_path / "first", first, Loop(target=7.0))
    left = tmp_path / "first" / "out" / "state.safetensors"
    later = tmp_path / "later"
    later.mkdir()
    left.rename(later / "state.safetensors")

    again = Loop(target=7.0)
    resumed = msgspec.structs.replace(more, resume="state.safetensors")
    final, _ = run_all(later, resumed, again)

    np.testing.assert_array_equal(final, whole)
    assert again.steps == 8


def test_what_cannot_be_gone_on_with_is_refused(tmp_path: Path) -> None:
    exchange = FolderExchange(tmp_path, "aggregate.0")
    chosen = settings(resume="nothing.safetensors")

    with pytest.raises(UsageError, match=r"nothing\.safetensors cannot be gone on"):
        Aggregator(exchange, chosen, 1, tmp_path, RunCurves(chosen, StringIO()))


def test_a_run_goes_on_in_other_fragments_and_never_with_nothing_to_do(
    tmp_path: Path,
) -> None:
    first = settings(rounds=4, fragments=2, compress="float32")
    run_all(tmp_path / "first", first, Loop(target=7.0))
    left, later = tmp_path / "first" / "out" / "state.safetensors", tmp_path / "later"
    later.mkdir()
    left.rename(later / "state.safetensors")
    resumed = {"resume": "state.safetensors", "compress": "float32"}

    again = Loop(target=7.0)
    final, _ = run_all(later, settings(rounds=6, **resumed), again)

    assert again.steps == 8
    assert np.abs(final - 7).max() < np.abs(START - 7).max()
    same = settings(rounds=4, **resumed)
    exchange = FolderExchange(later, "aggregate.0")
    shutil.rmtree(later / "checkpoint")
    with pytest.raises(UsageError, match="has done 4 rounds, and this job asks for 4"):
        Aggregator(exchange, same, 2, later, RunCurves(same, StringIO()))


class Rolling(Loop):
    """A loop with momentum: what it keeps besides its weights."""

    def __init__(self, target: float) -> None:
        super().__init__(target)
        self.speed = np.zeros_like(START)

    def step(self) -> None:
        self.speed *= np.float32(0.9)
        self.speed += np.float32(0.01) * (self.target - self.weights)
        self.weights += self.speed
        self.steps += 1

    def save(self, path: Path) -> None:
        path.write_bytes(self.speed.tobytes())

    def load(self, path: Path) -> None:
        self.speed = np.frombuffer(path.read_bytes(), dtype=np.float32).copy()


def test_a_resumed_loop_has_what_it_kept(tmp_path: Path) -> None:
    more = settings(rounds=6, compress="float32", outer_momentum=0.5)
    whole, _ = run_all(tmp_path / "whole", more, Rolling(target=7.0))
    first = settings(rounds=4, compress="float32", outer_momentum=0.5)
    run_all(tmp_path / "first", first, Rolling(7.0))
    left = tmp_path / "first" / "out" / "state.safetensors"
    later = tmp_path / "later"
    later.mkdir()
    left.rename(later / "state.safetensors")

    resumed = msgspec.structs.replace(more, resume="state.safetensors")
    final, _ = run_all(later, resumed, Rolling(target=7.0))

    np.testing.assert_array_equal(final, whole)


# What is sent.


def test_the_state_goes_to_keepers_only_as_often_as_it_is_asked_to(
    tmp_path: Path,
) -> None:
    loops = [Loop(2.0), Loop(4.0)]
    often = settings(rounds=6, workers=2, quorum=2, checkpoint_every=2, silence=60)
    seldom = msgspec.structs.replace(often, checkpoint_every=10)

    _, curves = run_all(tmp_path / "seldom", seldom, Loop(2.0), Loop(4.0))
    rare = lines_of(curves, "sent")[-1]["bytes_sent_by_kind"]
    _, curves = run_all(tmp_path / "often", often, *loops)
    frequent = lines_of(curves, "sent")[-1]["bytes_sent_by_kind"]

    assert rare.get("checkpoints", 0) == 0
    assert frequent["checkpoints"] > 0
    for sent in (rare, frequent):
        assert sent["control"] > 0
        assert sent["weights"] > 0  # The first weights, to the aggregator.
        assert sum(sent.values()) > sent["contributions"] + sent["updates"]


# Bad contributions.


class Spoiled(Loop):
    """A loop whose weights become something else before they are sent."""

    def __init__(self, target: float, spoil: Callable[[Array], None]) -> None:
        super().__init__(target)
        self._spoil = spoil

    def step(self) -> None:
        super().step()
        if self.steps % 2 == 0:
            self._spoil(self.weights)


def nan(weights: Array) -> None:
    weights[1] = np.nan


def too_large(weights: Array) -> None:
    weights[:] = 1e6


@pytest.mark.parametrize("fragments", [1, 2])
@pytest.mark.parametrize("spoil", [nan, too_large])
def test_one_whose_weights_are_ruined_is_named_and_ruins_nothing(
    tmp_path: Path, spoil: Callable[[Array], None], fragments: int
) -> None:
    chosen = settings(
        rounds=6, workers=4, quorum=3, fragments=fragments, outer_momentum=0.5
    )
    loops = [Loop(2.0), Loop(3.0), Loop(4.0), Spoiled(3.0, spoil)]

    final, curves = run_all(tmp_path, chosen, *loops)

    assert np.isfinite(final).all()
    assert np.abs(final - 3.0).max() < np.abs(START - 3.0).max()
    refused = lines_of(curves, "refused")
    assert refused
    assert {line["worker"] for line in refused} == {"train.3"}


def test_a_garbage_file_and_absurd_samples_end_no_run(tmp_path: Path) -> None:
    chosen = settings(rounds=5, workers=4, quorum=3, outer_momentum=0.5)
    loops = [Loop(2.0), Loop(3.0), Loop(4.0, samples=1 << 60), Garbage(3.0)]

    final, curves = run_all(tmp_path, chosen, *loops)

    assert np.abs(final - 3.0).max() < np.abs(START - 3.0).max()
    [*_, last] = lines_of(curves, "refused")
    assert last["worker"] == "train.3"
    assert "cannot be read" in last["reason"]
    assert lines_of(curves, "round")[-1]["workers"] == 3


def test_a_run_whose_contributions_are_all_refused_fails_with_a_reason(
    tmp_path: Path,
) -> None:
    chosen = settings(rounds=5, workers=2, quorum=2)

    with pytest.raises(ShoalError, match="no contribution of this round") as failure:
        run_all(tmp_path, chosen, Loop(2.0, samples=0), Loop(3.0, samples=0))

    assert "train.1: it has no samples" in str(failure.value.because)


class Garbage(Loop):
    """A loop whose files are none."""


class GarbageExchange:
    """Puts garbage in place of deltas."""

    def __init__(self, inner: FolderExchange) -> None:
        self._inner = inner
        self.name = inner.name
        self.traffic = inner.traffic
        self._put = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - As it is there.
        return getattr(self._inner, name)

    def put(self, path: Path) -> str:
        self._put += 1
        if self._put > 2:  # After the first weights and their list of pieces.
            path.write_bytes(b"garbage")
        return self._inner.put(path)


class StuckExchange:
    """Never gets done with a file that another thread than the loop's puts."""

    def __init__(self, exchange: FolderExchange) -> None:
        self._exchange = exchange
        self._own = threading.current_thread()
        self.is_stuck = threading.Event()

    def put(self, path: Path) -> str:
        if threading.current_thread() is not self._own:
            self.is_stuck.set()
            threading.Event().wait(20)
        return self._exchange.put(path)

    def __getattr__(self, name: str) -> object:
        return getattr(self._exchange, name)


def test_an_error_does_not_wait_for_a_transfer(tmp_path: Path) -> None:
    chosen = settings(fragments=2)
    aggregator = FolderExchange(tmp_path, "aggregate.0")
    stuck = StuckExchange(FolderExchange(tmp_path, "train.0"))
    loop = Loop(target=7.0)

    def direct() -> None:
        mail = aggregator.receive(timeout_s=10)
        assert mail is not None
        said = decode_from_worker(mail.data)
        assert isinstance(said, messages.Status)
        order = messages.Directive(
            epoch=1,
            seq=1,
            life=1,
            running=True,
            weights=messages.KeptState(0, said.initial),
            steps={"0": 1, "1": 1},
        )
        aggregator.send("train.0", messages.encode(order))

    def fail() -> NoReturn:
        with DilocoSession(
            cast("Exchange", stuck),
            chosen,
            life=1,
            weights=ArrayWeights({"w": loop.weights}),
        ) as run:
            run.step(samples=1, loss=0.0)
            assert stuck.is_stuck.wait(10)
            raise ValueError(time.monotonic())

    helper = threading.Thread(target=direct)
    helper.start()
    with pytest.raises(ValueError, match=r"\d") as raised:
        fail()
    helper.join()
    assert time.monotonic() - raised.value.args[0] < 3
