"""Train networks and write them to files: `<seed>.safetensors` (weights), `.json` (card) and `.csv` (log)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from predbn.common import ProgressWithNote, TrainingError, lock_folder, read_json, sync_folder, write_json
from predbn.models import write_weights

from .loop import TrainingRun, report_steps, train_side_by_side
from .recipes import BaseRecipe
from .run_files import check_same_recipe, run_file
from .trainer import Trainer

_STORAGE = "matrices fp16, vectors fp32; the scores are of the weights as stored"


def train_networks(
    make_trainer: Callable[[int], Trainer],
    recipe: BaseRecipe,
    seeds: Sequence[int],
    folder: Path,
    *,
    side_by_side: int = 1,
    resume: bool = False,
    checkpoint_steps: int = 1000,
    progress: ProgressWithNote | None = None,
    on_network: Callable[[int, dict[str, Any]], object] = lambda seed, card: None,
    is_first: bool = True,
) -> dict[int, dict[str, Any]]:
    """Train a network with every seed, write them to `folder`, and return their cards by seed.

    `side_by_side` networks are trained at a time. With `resume`, finished networks are kept and interrupted ones are
    continued; without it, both are errors. `on_network` is called with the seed and card of each network that is
    written. If a network diverges, the others are still trained and written before the TrainingError is raised.

    While this runs, no other process can train one of these networks in the same folder; other seeds can be trained
    there, for example on another GPU. Of the processes of a group only the first writes and locks (`is_first`).
    """
    if side_by_side < 1:
        raise TrainingError(f"Expected side_by_side to be at least 1, but got {side_by_side}.")
    with _lock_networks(seeds, folder) if is_first else nullcontext():
        cards = finished_networks(recipe, seeds, folder, resume=resume)
        pending = [seed for seed in seeds if seed not in cards]
        diverged = []
        for start in range(0, len(pending), side_by_side):
            trainers = [make_trainer(seed) for seed in pending[start : start + side_by_side]]
            train_side_by_side(
                [TrainingRun(trainer, folder / str(trainer.seed)) for trainer in trainers],
                resume=resume,
                checkpoint_steps=checkpoint_steps,
                on_step=partial(report_steps, progress, trainers, done=start, networks=len(pending)),
            )
            for trainer in trainers:
                if trainer.diverged:
                    diverged.append(f"seed {trainer.seed} (epoch {trainer.epoch})")
                else:
                    cards[trainer.seed] = save_network(trainer, folder / str(trainer.seed))
                    on_network(trainer.seed, cards[trainer.seed])
        if diverged:
            raise TrainingError(f"The loss is no longer finite with {', '.join(diverged)}: lower the learning rate.")
        return cards


@contextmanager
def _lock_networks(seeds: Sequence[int], folder: Path) -> Iterator[None]:
    with ExitStack() as locks:
        for seed in dict.fromkeys(seeds):
            locks.enter_context(lock_folder(folder, run=str(seed), error=TrainingError))
        yield


def finished_networks(
    recipe: BaseRecipe, seeds: Sequence[int], folder: Path, *, resume: bool
) -> dict[int, dict[str, Any]]:
    """The cards of the networks that are finished, by seed. It is an error if there are any without `resume`.

    The card is written last: a network without one was interrupted and is finished from its checkpoint. A card whose
    weights are missing or different is an error.
    """
    cards = {}
    for seed in seeds:
        weights, card = (run_file(folder / str(seed), suffix) for suffix in ("safetensors", "json"))
        if not resume and (weights.exists() or card.exists()):
            existing = card if card.exists() else weights
            raise TrainingError(f"{existing} exists already: use --resume to keep it, or choose another --out.")
        if card.exists():
            cards[seed] = _read_card(card, weights)
            check_same_recipe(card, cards[seed]["recipe"], recipe.to_dict())
            # Left behind if the training was killed between writing the card and deleting the checkpoint.
            run_file(folder / str(seed), "checkpoint").unlink(missing_ok=True)
    return cards


def _read_card(path: Path, weights: Path) -> dict[str, Any]:
    remedy = f"delete {path.stem}.json and {weights.name} to train the network again"
    card = read_json(path, error=TrainingError, remedy=remedy)
    if not isinstance(card.get("recipe"), dict):
        raise TrainingError(f"{path} is not the card of a network, because it has no recipe: {remedy}.")
    if not weights.is_file():
        raise TrainingError(f"{path} exists, but {weights} does not: {remedy}.")
    if card.get("weights_sha256") != _sha256(weights):
        raise TrainingError(f"{weights} is damaged, or not what {path} belongs to: {remedy}.")
    return card


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def save_network(trainer: Trainer, path: Path) -> dict[str, Any]:
    """Write the weights, then the card with the scores of the stored weights, then delete the checkpoint."""
    weights, card = run_file(path, "safetensors"), trainer.card()
    if trainer.group.is_first:
        write_weights(weights, trainer.final_weights(), card if trainer.card_in_weights else None)
    trainer.group.barrier()
    card = {**card, **trainer.score_stored(weights), "storage": _STORAGE, "weights_sha256": _sha256(weights)}
    if trainer.group.is_first:
        write_json(run_file(path, "json"), card, indent=2)
        sync_folder(path.parent)
        run_file(path, "checkpoint").unlink(missing_ok=True)
    return card
