"""L-BFGS for several smooth convex problems at once (Nocedal and Wright 2006, algorithms 7.4 and 7.5).

All problems advance together, one evaluation of their objectives a round; one that is done leaves the batch.
The two-loop recursion starts from the inverse of the Hessian's diagonal at a recent point instead of a
multiple of the identity, which takes several times fewer rounds where the diagonal is uneven.
"""

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

MEMORY = 10  # pairs of steps and gradient changes
REFRESH = 10  # rounds between looks at the Hessian's diagonal
DECREASE = 1e-4  # share of the predicted decrease that a step must reach (Armijo)
ROUNDING = 1e-7  # relative error of a value in single precision
GAP = 1e-3  # share of the value by which the quadratic model may still hope to lower it
SHORTEST = 1e-6  # a step below this share of the proposed one: nothing is left but rounding


class Problem(Protocol):
    """Several problems: values float64 [b], gradients [b, P] and on request the Hessians' diagonals [b, P] > 0."""

    def __call__(self, x: Tensor, problem: Tensor, diagonal: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """`x` [b, P]; `problem` int64 [b], the numbers of those that are still open."""


@dataclass
class _State:
    """Open problems, one a row."""

    problem: Tensor  # int64 [b]
    x: Tensor  # [b, P]
    value: Tensor  # float64 [b]
    gradient: Tensor
    diagonal: Tensor
    direction: Tensor
    step: Tensor  # [b], share of the direction to be tried
    moves: list[Tensor] = field(default_factory=list)  # s of the last rounds, [b, P] each
    changes: list[Tensor] = field(default_factory=list)  # y, of the gradient
    rho: list[Tensor] = field(default_factory=list)  # [b], 1 / s.y; 0 where the round's step was refused

    def keep(self, rows: Tensor) -> "_State":
        """Only these rows (bool [b])."""
        return _State(
            self.problem[rows],
            self.x[rows],
            self.value[rows],
            self.gradient[rows],
            self.diagonal[rows],
            self.direction[rows],
            self.step[rows],
            *([tensor[rows] for tensor in history] for history in (self.moves, self.changes, self.rho)),
        )


def minimise(objective: Problem, start: Tensor, tolerance: float, rounds: int) -> Tensor:
    """The minimisers [B, P], from `start` [B, P].

    A problem is done when the largest entry of its gradient is at most `tolerance` and the decrease that the
    quadratic model predicts is small beside the value (a loss near 0 has a small gradient far from its minimum),
    when steps no longer show in single precision, or after `rounds` evaluations.
    """
    found = start.clone()
    problem = torch.arange(len(start), device=start.device)
    value, gradient, diagonal = objective(start, problem, True)
    assert diagonal is not None
    state = _State(problem, start, value, gradient, diagonal, -gradient / diagonal, torch.ones_like(start[:, 0]))
    for number in range(1, rounds + 1):
        flat = state.gradient.abs().amax(dim=1) <= tolerance
        low = -0.5 * _dot(state.gradient, state.direction) <= GAP * state.value
        done = (flat & low) | (state.step < SHORTEST)
        found[state.problem[done]] = state.x[done]
        if bool(done.all()):
            return found
        if bool(done.any()):
            state = state.keep(~done)
        _advance(state, objective, look=number % REFRESH == 0)
    found[state.problem] = state.x
    return found


def _advance(state: _State, objective: Problem, look: bool) -> None:
    """Tries each problem's step; takes it where the value falls, else shortens it for the next round."""
    slope = _dot(state.gradient, state.direction)
    x = state.x + state.step[:, None] * state.direction
    value, gradient, diagonal = objective(x, state.problem, look)
    allowed = state.value + (DECREASE * state.step * slope).double() + ROUNDING * state.value.abs()
    taken = value <= allowed
    move, change = x - state.x, gradient - state.gradient
    curvature = _dot(move, change)
    state.moves.append(move)
    state.changes.append(change)
    state.rho.append(torch.where(taken & (curvature > 0), 1 / curvature, 0.0))
    if len(state.moves) > MEMORY:
        for history in (state.moves, state.changes, state.rho):
            history.pop(0)
    # a convex function falls, then rises: where a step went too far, the slope's zero lies before its end
    shorter = state.step * (slope / (slope - _dot(gradient, state.direction))).clamp(0.1, 0.7)
    rows = taken[:, None]
    state.x = torch.where(rows, x, state.x)
    state.value = torch.where(taken, value, state.value)
    state.gradient = torch.where(rows, gradient, state.gradient)
    if diagonal is not None:
        state.diagonal = torch.where(rows, diagonal, state.diagonal)
    state.direction = torch.where(rows, _direction(state), state.direction)
    state.step = torch.where(taken, 1.0, shorter)


def _direction(state: _State) -> Tensor:
    """Minus the inverse Hessian's estimate times the gradient [b, P]: the two-loop recursion."""
    q = -state.gradient
    shares = []
    history = list(zip(state.moves, state.changes, state.rho, strict=True))
    for move, change, rho in reversed(history):
        shares.append(rho * _dot(move, q))
        q = q - shares[-1][:, None] * change
    q = q / state.diagonal
    for (move, change, rho), share in zip(history, reversed(shares), strict=True):
        q = q + (share - rho * _dot(change, q))[:, None] * move
    return q


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Of each row; [b]."""
    return (a * b).sum(dim=1)
