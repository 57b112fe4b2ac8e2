"""Studies of Optuna whose trials run in the shoal: `shoal.optuna.optimize(...)`.

```python
import optuna
import shoal.optuna

space = {"lr": optuna.distributions.FloatDistribution(1e-5, 1e-1, log=True)}
study = optuna.create_study()
shoal.optuna.optimize(study, train, space, trials=100, gpu=1)
```

`train` gets the params of a trial by name and returns its value. The study stays here:
a trial is proposed when one before it has ended, by what is known then. Workers need
not have Optuna.
"""

# Optuna need not be installed.
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, wait
from typing import TYPE_CHECKING, Any

from optuna.trial import TrialState

from shoal.client.tasks import default_client

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from optuna.study import Study
    from optuna.trial import Trial

    from shoal.client.client import Client
    from shoal.client.futures import Future


def optimize(
    study: Study,
    objective: Callable[..., Any],
    space: Mapping[str, Any],
    trials: int,
    *,
    at_once: int | None = None,
    catch: tuple[type[Exception], ...] = (),
    client: Client | None = None,
    **options: Any,  # noqa: ANN401 - Those of `shoal.Client`.
) -> None:
    """Run trials of a study in the shoal, by default as many at once as it has CPUs.

    `space` has a distribution for each param. A trial whose objective raises has
    failed; unless `catch` names the error, it is raised, and the trials that still run
    are stopped.
    """
    shoal = client or default_client()
    executor = shoal.executor(**options)
    most = at_once or shoal.slots
    running: dict[Future[Any], Trial] = {}
    try:
        for _ in range(trials):
            if len(running) >= most:
                _tell_some(study, running, catch)
            trial = study.ask(dict(space))
            running[executor.submit(objective, **trial.params)] = trial
        while running:
            _tell_some(study, running, catch)
    finally:
        for future, trial in running.items():
            future.stop()
            study.tell(trial, state=TrialState.FAIL)


def _tell_some(
    study: Study,
    running: dict[Future[Any], Trial],
    catch: tuple[type[Exception], ...],
) -> None:
    """Wait until a trial has ended; tell the study about those that have."""
    wait(running, return_when=FIRST_COMPLETED)
    for future in [each for each in running if each.done()]:
        trial, error = running.pop(future), future.exception()
        if error is None:
            study.tell(trial, future.result())
            continue
        study.tell(trial, state=TrialState.FAIL)
        if not isinstance(error, catch):
            raise error
