"""Search hyperparameters with Optuna: it proposes, the shoal tries several at once.

Run it with `python search.py`. The study lives here; trials run on all machines.
"""

import optuna

import shoal

TRIALS = 24
AT_ONCE = 4


def loss(x: float, y: float) -> float:
    """Return what a training run would: the smaller, the better."""
    return (x - 2) ** 2 + (y + 1) ** 2


def main() -> None:
    """Ask for trials, run them in the shoal, tell their results."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1))
    with shoal.Client() as client:
        for _ in range(TRIALS // AT_ONCE):
            trials = [study.ask() for _ in range(AT_ONCE)]
            params = [
                (t.suggest_float("x", -10, 10), t.suggest_float("y", -10, 10))
                for t in trials
            ]
            losses = client.map(loss, *zip(*params, strict=True), chunksize=1)
            for trial, value in zip(trials, losses, strict=True):
                study.tell(trial, value)
    print(f"{len(study.trials)} trials, best {study.best_value:.2f}")


if __name__ == "__main__":
    main()
