"""The workers of a run on a Ray cluster: they come and go, its units do not.

A worker gets units once it has answered, at most two at a time, so that it need not wait while a result is written.
When it is lost (killed, out of memory, gone with its node), its units go back to the front of the queue and another
one is started where there is room, on nodes that have joined since too. A result is taken from the very call that is
waited for, so that what a lost worker may still have sent is never seen, and every unit gives one result.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain, zip_longest
from typing import Any

from predbn.common import EvaluationError, versions

from .ray_nodes import Node, Share
from .ray_worker import Greeting, RayWorker
from .units import Unit, UnitResult

__all__ = ["Crew"]

_TICK = 1.0
_PATIENCE = 15.0


@dataclass(eq=False)
class _Hand:
    """A worker: its actor, and the calls it has not answered, the first of which it is busy with."""

    node: Node
    actor: Any
    calls: dict[Any, Unit | None] = field(default_factory=dict)
    is_ready: bool = False


class _Lost(Exception):
    """A worker is gone; why."""


class Crew:
    """Workers that all hold the same cargo. A unit, or a start on a node, may be lost `retries` times."""

    def __init__(self, cargo: Any, share: Share, retries: int) -> None:
        self._ray: Any = import_module("ray")
        self._cargo, self._share, self._retries = cargo, share, retries
        self._hands: list[_Hand] = []
        self._met: list[Greeting] = []
        self._failed_starts: Counter[str] = Counter()
        self._last_loss = ""
        self._patient_until = time.monotonic() + _PATIENCE

    def hardware(self) -> list[dict[str, Any]]:
        """The kinds of machines that have taken part, each once."""
        kinds = {str(greeting.hardware): greeting.hardware for greeting in self._met}
        return [kinds[kind] for kind in sorted(kinds)]

    def do(self, units: Sequence[Unit]) -> Iterator[UnitResult]:
        """The results of the units as they come."""
        waiting, losses = deque(units), Counter[Unit]()
        try:
            while waiting or any(hand.calls for hand in self._hands if hand.is_ready):
                self._hire(len(waiting))
                self._hand_out(waiting)
                hand, call = self._answered()
                if hand is None:
                    continue
                try:
                    result = self._result(hand, call)
                except _Lost as loss:
                    self._last_loss = str(loss)
                    self._part_with(hand, waiting, losses)
                    continue
                if result is not None:
                    yield result
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let all workers go, whatever they are doing."""
        for hand in self._hands:
            self._dismiss(hand)
        self._hands = []

    def _hire(self, waiting: int) -> None:
        """Start workers where there is room for them, spread over the nodes, no more than there are units."""
        room = []
        for node in Node.alive(self._ray):
            if self._failed_starts[node.id] <= self._retries:
                there = sum(hand.node.id == node.id for hand in self._hands)
                room.append([(node, options) for options in self._share.options(node.resources)[there:]])
        places = [place for place in chain(*zip_longest(*room)) if place is not None]
        unemployed = sum(not (hand.is_ready and hand.calls) for hand in self._hands)
        for node, options in places[: max(0, waiting - unemployed)]:
            self._hands.append(self._start(node, options))
        if not self._hands:
            lost = f" any more (the last worker was lost: {self._last_loss})" if self._last_loss else ""
            raise EvaluationError(
                f"the Ray cluster has no node with {self._share} for a worker{lost}: add one, or ask for less with "
                "--cpus-per-worker or --gpus-per-worker, and run the same command again; what is finished is kept."
            )

    def _start(self, node: Node, options: dict[str, float]) -> _Hand:
        strategies: Any = import_module("ray.util.scheduling_strategies")
        here = strategies.NodeAffinitySchedulingStrategy(node.id, soft=False)
        kind = self._ray.remote(RayWorker).options(scheduling_strategy=here, max_restarts=0, **options)
        actor = kind.remote(self._share.device, int(options["num_cpus"]))
        return _Hand(node, actor, {actor.open.remote(self._cargo): None})

    def _hand_out(self, waiting: deque[Unit]) -> None:
        """Give every ready worker a unit, and a second one while there are enough for all."""
        ready = [hand for hand in self._hands if hand.is_ready]
        for depth in (1, 2):
            if depth == 2 and len(waiting) < len(ready):
                break
            for hand in ready:
                if waiting and len(hand.calls) < depth:
                    unit = waiting.popleft()
                    hand.calls[hand.actor.do.remote(unit)] = unit

    def _answered(self) -> tuple[_Hand, Any] | tuple[None, None]:
        """A call that has come to an end, but none rather than overlook a node that comes or goes."""
        owner = {call: hand for hand in self._hands for call in hand.calls}
        calls, _ = self._ray.wait(list(owner), num_returns=1, timeout=_TICK)
        if calls:
            return owner[calls[0]], calls[0]
        if not self._met and time.monotonic() > self._patient_until:
            logging.getLogger(__name__).warning("waiting for a node of the cluster with %s free", self._share)
            self._patient_until = float("inf")
        return None, None

    def _result(self, hand: _Hand, call: Any) -> UnitResult | None:
        """What a call came to: None for the first one of a worker. What the unit raised is raised here."""
        errors = self._ray.exceptions
        try:
            answer: Greeting | UnitResult = self._ray.get(call)
        except errors.RayTaskError as error:
            if isinstance(error.cause, ValueError):
                raise error.cause from None
            if isinstance(error.cause, errors.RayError):
                raise _Lost(_reason(hand, error.cause)) from None
            if hand.is_ready:
                raise
            raise EvaluationError(
                f"no worker can be started on {_reason(hand, error.cause)}: predbn must be installed on every node, or "
                "travel in Ray's runtime_env."
            ) from None
        except errors.RayError as error:
            raise _Lost(_reason(hand, error)) from None
        del hand.calls[call]
        if isinstance(answer, UnitResult):
            return answer
        _check_versions(hand.node, answer)
        self._met.append(answer)
        hand.is_ready = True
        return None

    def _part_with(self, hand: _Hand, waiting: deque[Unit], losses: Counter[Unit]) -> None:
        """Take a lost worker's units back. The loss is put down to the one that it was busy with."""
        self._hands.remove(hand)
        self._dismiss(hand)
        if not hand.is_ready:
            self._failed_starts[hand.node.id] += 1
            return
        self._failed_starts[hand.node.id] = 0
        units = [unit for unit in hand.calls.values() if unit is not None]
        waiting.extendleft(reversed(units))
        losses[units[0]] += 1
        if losses[units[0]] > self._retries:
            raise EvaluationError(
                f"{units[0].label} was lost {losses[units[0]]} times with its worker (last on {self._last_loss}): look "
                "for a lack of memory there, and run the same command again; what is finished is kept."
            )

    def _dismiss(self, hand: _Hand) -> None:
        if self._ray.is_initialized():
            self._ray.kill(hand.actor)


def _reason(hand: _Hand, error: Exception) -> str:
    """Where it was, and the first line of what Ray says."""
    text = str(error).strip() or type(error).__name__
    return f"{hand.node.address} ({text.splitlines()[0].rstrip('.')})"


def _check_versions(node: Node, greeting: Greeting) -> None:
    """Refuse a worker that might come to other values. Builds of one version for CPU and GPU count as the same."""
    for name, here in versions().items():
        there = greeting.versions.get(name, "none")
        if here.partition("+")[0] != there.partition("+")[0]:
            raise EvaluationError(
                f"{node.address} has {name} {there}, but this machine has {here}: the same values need the same "
                "versions on every node."
            )
