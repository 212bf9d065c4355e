"""Random search over the hyperparameters of the optimiser, in the paper's ranges, several trials side by side.

Optuna stores the trials in a journal file, to which machines that share a file system can all append, or in any
database that it supports. The point of a trial depends only on the seed and the trial's number, so that neither the
number of machines nor an interruption changes which points are tried.
"""

from __future__ import annotations

import math
import os
import socket
import zlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predbn.common import ProgressWithNote, TrainingError, first_line, needs_extra

from ..loop import TrainingRun, report_steps, train_side_by_side
from ..recipes import Cifar10Recipe
from .trainer import Cifar10Data, Cifar10Trainer

if TYPE_CHECKING:
    import optuna

SEARCH_RANGES = {
    "learning_rate": (1e-3, 1.0),
    "one_minus_momentum": (1e-2, 0.15),
    "adam_eps": (1e-8, 1e-5),
    "weight_decay": (1e-5, 1e-3),
}
"""All on a logarithmic scale. The first three are the paper's for CIFAR-10; it does not mention weight decay."""

DECOUPLED_RANGE = (1e-2, 1.0)
"""The range of `weight_decay` if it is decoupled."""


def open_study(storage: str, name: str, *, seed: int) -> optuna.Study:
    """The study with that name in `storage`: a journal file, or a database URL such as sqlite:///search.db."""
    optuna = _optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        if "://" in storage:
            backend: Any = storage
        else:
            Path(storage).parent.mkdir(parents=True, exist_ok=True)
            backend = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(storage))
        study = optuna.create_study(
            storage=backend, study_name=name, direction="maximize", load_if_exists=True, sampler=_sampler(seed)
        )
    except Exception as error:
        reason = first_line(error)
        raise TrainingError(
            f"The storage {storage} cannot be opened ({reason}): name a journal file, or a database such as "
            "sqlite:///search.db."
        ) from None
    _requeue_dead_trials(study)
    return study  # type: ignore[no-any-return]


def run_search(
    study: optuna.Study,
    recipe: Cifar10Recipe,
    data: Cifar10Data,
    *,
    trials: int,
    side_by_side: int,
    ranges: dict[str, tuple[float, float]] | None = None,
    progress: ProgressWithNote | None = None,
) -> None:
    """Run trials until the study has `trials` complete ones, whichever machine ran them.

    The value of a trial is its validation accuracy after the last epoch. A trial that diverges is complete too, with
    the accuracy of guessing: it says where not to look. The seed of a trial's network is the trial's number; a trial
    that is repeated keeps its seed.
    """
    optuna = _optuna()
    complete = optuna.trial.TrialState.COMPLETE
    decoupled = {"weight_decay": DECOUPLED_RANGE} if recipe.decoupled else {}
    space = {
        name: optuna.distributions.FloatDistribution(*ends, log=True)
        for name, ends in {**SEARCH_RANGES, **decoupled, **(ranges or {})}.items()
    }
    while (done := len(study.get_trials(deepcopy=False, states=(complete,)))) < trials:
        batch = [_ask(study, space, recipe.epochs) for _ in range(min(trials - done, side_by_side))]
        trainers = [
            Cifar10Trainer(_with_params(recipe, trial.params), trial.user_attrs["seed"], data) for trial in batch
        ]
        train_side_by_side(
            [TrainingRun(trainer) for trainer in trainers],
            on_step=partial(report_steps, progress, trainers, done=done, networks=trials),
        )
        for trial, trainer in zip(batch, trainers, strict=True):
            trial.set_user_attr("diverged", trainer.diverged)
            trial.set_user_attr("validation_loss", None if trainer.diverged else trainer.metrics["validation_loss"])
            study.tell(trial, 0.1 if trainer.diverged else trainer.metrics["validation_accuracy"])


def _ask(study: optuna.Study, space: dict[str, Any], epochs: int) -> optuna.Trial:
    trial = study.ask(space)
    trial.set_user_attr("worker", f"{socket.gethostname()}:{os.getpid()}")
    trial.set_user_attr("seed", trial.user_attrs.get("seed", trial.number))
    trial.set_user_attr("epochs", epochs)
    return trial


def enqueue_best(study: optuna.Study, earlier: optuna.Study, count: int) -> None:
    """Start a study of longer trials with the best points of an earlier one, unless it has been started."""
    if not study.get_trials(deepcopy=False):
        for row in trial_table(earlier)[:count]:
            study.enqueue_trial({name: row[name] for name in SEARCH_RANGES})


def best_recipe(study: optuna.Study, recipe: Cifar10Recipe) -> Cifar10Recipe:
    """The recipe with the numbers of the best trial, rounded to four digits."""
    rounded = {name: float(f"{value:.4g}") for name, value in study.best_trial.params.items()}
    return _with_params(recipe, rounded)


def trial_table(study: optuna.Study) -> list[dict[str, Any]]:
    """The complete trials, best first: hyperparameters, epochs, validation accuracy and loss."""
    complete = _optuna().trial.TrialState.COMPLETE
    trials = study.get_trials(deepcopy=False, states=(complete,))
    return [
        {
            "trial": trial.number,
            **{name: float(f"{trial.params[name]:.4g}") for name in SEARCH_RANGES},
            "epochs": trial.user_attrs["epochs"],
            "validation_accuracy": round(trial.value or 0.0, 4),
            "validation_loss": _round_loss(trial.user_attrs["validation_loss"]),
            "diverged": trial.user_attrs["diverged"],
        }
        for trial in sorted(trials, key=lambda trial: (-(trial.value or 0.0), trial.number))
    ]


def _round_loss(loss: float | None) -> float | None:
    return None if loss is None or not math.isfinite(loss) else float(f"{loss:.4g}")


def _with_params(recipe: Cifar10Recipe, params: dict[str, Any]) -> Cifar10Recipe:
    numbers = dict(params)
    momentum = 1 - numbers.pop("one_minus_momentum")
    return replace(recipe, momentum=momentum, **numbers)


def _requeue_dead_trials(study: optuna.Study) -> None:
    """Mark running trials whose process on this machine has ended as failed, and queue their points again."""
    state = _optuna().trial.TrialState
    for trial in study.get_trials(deepcopy=False, states=(state.RUNNING,)):
        host, _, process = trial.user_attrs.get("worker", ":").partition(":")
        if host == socket.gethostname() and not _is_alive(int(process)):
            study.tell(trial.number, state=state.FAIL)
            study.enqueue_trial(trial.params, user_attrs={"seed": trial.user_attrs.get("seed", trial.number)})


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _sampler(seed: int) -> optuna.samplers.BaseSampler:
    optuna = _optuna()

    class NumberedSampler(optuna.samplers.RandomSampler):  # type: ignore[misc, name-defined]
        """Uniform in the distribution; a draw depends on the seed, the trial's number and the parameter's name only."""

        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            own_seed = zlib.crc32(f"{seed}/{trial.number}/{param_name}".encode())
            sampler = optuna.samplers.RandomSampler(seed=own_seed)
            return sampler.sample_independent(study, trial, param_name, param_distribution)

    return NumberedSampler()


def _optuna() -> Any:
    with needs_extra("tune", what="The search"):
        import optuna
    return optuna
