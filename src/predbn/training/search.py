"""Random search over the optimiser's numbers, in the paper's ranges, several trials at once on one device.

Optuna keeps the trials: in a journal file, which machines that share a file system may all append to, or in any
database that it knows. What a trial draws follows from the seed and its number alone, so that neither the number of
machines nor an interruption changes which points are tried.
"""

from __future__ import annotations

import math
import os
import socket
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predbn.common import TrainingError

from .cohort import Epoch, Run, train_together
from .recipe import Recipe
from .trainee import TrainingSet

if TYPE_CHECKING:
    import optuna

__all__ = ["RANGES", "best", "enqueue_best", "open_study", "search", "table"]

RANGES = {
    "learning_rate": (1e-3, 1.0),
    "one_minus_momentum": (1e-2, 0.15),
    "adam_eps": (1e-8, 1e-5),
    "weight_decay": (1e-5, 1e-3),
}
"""All on a logarithmic scale. The first three are the paper's for CIFAR-10; it names no weight decay."""

DECOUPLED = (1e-2, 1.0)
"""The range of a decoupled weight decay."""


def open_study(storage: str, name: str, *, seed: int) -> optuna.Study:
    """The study of that name: `storage` is a journal file, or a database address such as sqlite:///search.db."""
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
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise TrainingError(
            f"The storage {storage} cannot be opened ({reason}): name a journal file, or a database such as "
            "sqlite:///search.db."
        ) from None
    _give_up_dead_trials(study)
    return study  # type: ignore[no-any-return]


def search(
    study: optuna.Study,
    recipe: Recipe,
    data: TrainingSet,
    *,
    trials: int,
    at_once: int,
    ranges: dict[str, tuple[float, float]] | None = None,
    on_epoch: Callable[[list[Epoch]], None] = lambda epochs: None,
    on_trial: Callable[[optuna.trial.FrozenTrial], None] = lambda trial: None,
) -> None:
    """Run trials until the study has `trials` that are complete, whoever ran them.

    A trial's value is its accuracy on the validation images after its last epoch. One whose loss stops being a number
    is complete too, with the accuracy of guessing: it says where not to look. The seed of a trial's network is the
    trial's number; a trial that is tried again keeps the seed it had.
    """
    optuna = _optuna()
    done = optuna.trial.TrialState.COMPLETE
    wanted = {**RANGES, **({"weight_decay": DECOUPLED} if recipe.decoupled else {}), **(ranges or {})}
    space = {name: optuna.distributions.FloatDistribution(*ends, log=True) for name, ends in wanted.items()}
    while missing := max(0, trials - len(study.get_trials(deepcopy=False, states=(done,)))):
        asked = [_ask(study, space, recipe.epochs) for _ in range(min(missing, at_once))]
        runs = [Run(_recipe_of(trial.params, recipe), seed=trial.user_attrs["seed"]) for trial in asked]
        for trial, (_, epoch) in zip(asked, train_together(runs, data, on_epoch=on_epoch), strict=True):
            assert epoch is not None
            trial.set_user_attr("diverged", epoch.diverged)
            trial.set_user_attr("validation_loss", epoch.validation_loss if not epoch.diverged else None)
            on_trial(study.tell(trial, 0.1 if epoch.diverged else epoch.validation_accuracy))


def _ask(study: optuna.Study, space: dict[str, Any], epochs: int) -> optuna.Trial:
    trial = study.ask(space)
    trial.set_user_attr("worker", _worker())
    trial.set_user_attr("seed", trial.user_attrs.get("seed", trial.number))
    trial.set_user_attr("epochs", epochs)
    return trial


def enqueue_best(study: optuna.Study, earlier: optuna.Study, count: int) -> None:
    """Let a study of longer trials begin with the best points of an earlier one, unless it has begun."""
    if not study.get_trials(deepcopy=False):
        for row in table(earlier)[:count]:
            study.enqueue_trial({name: row[name] for name in RANGES})


def best(study: optuna.Study, recipe: Recipe) -> Recipe:
    """The recipe with the numbers of the best trial, to four digits."""
    rounded = {name: float(f"{value:.4g}") for name, value in study.best_trial.params.items()}
    return _recipe_of(rounded, recipe)


def table(study: optuna.Study) -> list[dict[str, Any]]:
    """The complete trials, best first: numbers tried, validation accuracy and loss, epochs."""
    done = _optuna().trial.TrialState.COMPLETE
    trials = study.get_trials(deepcopy=False, states=(done,))
    return [
        {
            "trial": trial.number,
            **{name: float(f"{trial.params[name]:.4g}") for name in RANGES},
            "epochs": trial.user_attrs["epochs"],
            "validation_accuracy": round(trial.value or 0.0, 4),
            "validation_loss": _rounded(trial.user_attrs["validation_loss"]),
            "diverged": trial.user_attrs["diverged"],
        }
        for trial in sorted(trials, key=lambda trial: (-(trial.value or 0.0), trial.number))
    ]


def _rounded(loss: float | None) -> float | None:
    return None if loss is None or not math.isfinite(loss) else float(f"{loss:.4g}")


def _recipe_of(params: dict[str, Any], recipe: Recipe) -> Recipe:
    numbers = dict(params)
    momentum = 1 - numbers.pop("one_minus_momentum")
    return replace(recipe, momentum=momentum, **numbers)


def _worker() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _give_up_dead_trials(study: optuna.Study) -> None:
    """Trials of a process of this machine that has ended without telling are failed, and their points tried again."""
    state = _optuna().trial.TrialState
    for trial in study.get_trials(deepcopy=False, states=(state.RUNNING,)):
        host, _, process = trial.user_attrs.get("worker", ":").partition(":")
        if host == socket.gethostname() and not _alive(int(process)):
            study.tell(trial.number, state=state.FAIL)
            study.enqueue_trial(trial.params, user_attrs={"seed": trial.user_attrs.get("seed", trial.number)})


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _sampler(seed: int) -> optuna.samplers.BaseSampler:
    optuna = _optuna()

    class ByNumber(optuna.samplers.BaseSampler):  # type: ignore[misc, name-defined]
        """Uniform in the distribution; the draw follows from the seed, the trial's number and the parameter's name."""

        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
            return {}

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
            return {}

        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            mixed = zlib.crc32(f"{seed}/{trial.number}/{param_name}".encode())
            sampler = optuna.samplers.RandomSampler(seed=mixed)
            return sampler.sample_independent(study, trial, param_name, param_distribution)

    return ByNumber()


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise TrainingError("The search needs Optuna: run `pip install predbn[tune]`.") from None
    return optuna
