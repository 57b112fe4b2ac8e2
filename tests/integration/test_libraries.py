"""joblib, Dask, Optuna and scikit-learn run in the shoal; with the real libraries.

`make test-integrations` installs them. Where they are missing, the tests are skipped.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.calling import client, node

import shoal

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[shoal.Client]:
    with (
        node(tmp_path_factory.mktemp("home")),
        client(lanes=2, cpu=0.2) as made,
    ):
        yield made


def test_joblib_runs_calls_in_the_shoal_and_raises_what_they_raise(
    caller: shoal.Client,
) -> None:
    joblib = pytest.importorskip("joblib")
    import shoal.joblib  # noqa: F401, PLC0415 - It needs joblib.

    with joblib.parallel_config("shoal", client=caller):
        squares = joblib.Parallel()(joblib.delayed(pow)(n, 2) for n in range(50))
        lazily = joblib.Parallel(return_as="generator")(
            joblib.delayed(lambda n: n + 1)(n) for n in range(5)
        )
        assert list(lazily) == [1, 2, 3, 4, 5]
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel()(joblib.delayed(divmod)(1, n) for n in (1, 0))
        assert joblib.Parallel(n_jobs=2)([joblib.delayed(abs)(-1)]) == [1]

    assert squares == [n * n for n in range(50)]


def test_a_search_of_sklearn_runs_in_the_shoal(caller: shoal.Client) -> None:
    joblib = pytest.importorskip("joblib")
    datasets = pytest.importorskip("sklearn.datasets")
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.model_selection import GridSearchCV  # noqa: PLC0415

    import shoal.joblib  # noqa: F401, PLC0415

    data, target = datasets.load_iris(return_X_y=True)
    search = GridSearchCV(LogisticRegression(max_iter=200), {"C": [0.1, 1.0]}, cv=2)

    with joblib.parallel_config("shoal", client=caller):
        search.fit(data, target)

    assert search.best_score_ > 0.8


def test_dask_computes_its_graphs_in_the_shoal(caller: shoal.Client) -> None:
    dask = pytest.importorskip("dask")
    from shoal.dask import get  # noqa: PLC0415 - It needs Dask.

    parts = [dask.delayed(pow)(n, 2) for n in range(8)]
    total = dask.delayed(sum)(parts)

    assert total.compute(scheduler=get, client=caller) == 140
    with pytest.raises(ZeroDivisionError):
        dask.delayed(divmod)(1, 0).compute(scheduler=get, client=caller)


def bowl(x: float, y: float) -> float:
    if x > 9:
        raise ValueError("too far")
    return (x - 2) ** 2 + (y + 1) ** 2


def test_a_study_of_optuna_runs_its_trials_in_the_shoal(caller: shoal.Client) -> None:
    optuna = pytest.importorskip("optuna")
    from shoal.optuna import optimize  # noqa: PLC0415 - It needs Optuna.

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1))
    axis = optuna.distributions.FloatDistribution(-10, 10)
    space = {"x": axis, "y": axis}
    far = {"x": optuna.distributions.FloatDistribution(9.5, 10), "y": axis}

    optimize(study, bowl, space, 20, client=caller, at_once=4, catch=(ValueError,))
    found = study.best_value
    with pytest.raises(ValueError, match="too far"):
        optimize(study, bowl, far, 4, client=caller, at_once=4)

    states = [trial.state.name for trial in study.trials]
    assert len(states) == 24
    assert states[20:] == ["FAIL"] * 4
    assert "RUNNING" not in states
    assert states.count("COMPLETE") >= 15
    assert found < 20
    assert study.best_params.keys() == {"x", "y"}


@pytest.mark.usefixtures("caller")
def test_the_example_for_optuna_finds_a_small_loss() -> None:
    pytest.importorskip("optuna")

    done = subprocess.run(
        [sys.executable, "search.py"],
        cwd=ROOT / "examples" / "optuna",
        capture_output=True,
        text=True,
        check=True,
    )

    count, _, best = done.stdout.partition(" trials, best ")
    assert count == "24"
    assert float(best) < 20
