"""L-BFGS for several smooth convex problems at once (Nocedal and Wright 2006, algorithms 7.4 and 7.5).

Not from a library: `torch.optim.LBFGS` and `scipy.optimize` solve one problem at a time. The linear probe fits many
values of C on the same features, and one matrix product per round serves all of them. Each round evaluates the
objectives of all unfinished problems once. Shapes: B problems, b of them unfinished, P parameters per problem.

The two-loop recursion starts from the inverse of the Hessian's diagonal at a recent point. The usual start, a multiple
of the identity, needs several times as many rounds if the diagonal entries differ much.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

MEMORY = 10  # stored pairs of steps and gradient changes
REFRESH = 10  # rounds between updates of the Hessian's diagonal
DECREASE = 1e-4  # share of the predicted decrease that a step must reach (Armijo)
ROUNDING = 1e-7  # relative error of a value in single precision
GAP = 1e-3  # largest predicted decrease of a converged problem, as a share of the value
SHORTEST = 1e-6  # a problem ends if its step falls below this share of the direction: only rounding is left


class Problem(Protocol):
    """The objective function of several problems."""

    def __call__(self, x: Tensor, problem: Tensor, diagonal: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return values float64 [b], gradients [b, P] and, if `diagonal`, the diagonals of the Hessians [b, P] > 0.

        `x` [b, P] are the points; `problem` int64 [b] are the indices of the unfinished problems.
        """


@dataclass
class _State:
    """Unfinished problems, one per row; s, y and rho as in Nocedal and Wright."""

    problem: Tensor  # int64 [b], index of the problem
    x: Tensor  # [b, P]
    value: Tensor  # float64 [b]
    gradient: Tensor  # [b, P]
    diagonal: Tensor  # [b, P]
    direction: Tensor  # [b, P]
    step: Tensor  # [b], share of the direction to try next
    moves: list[Tensor] = field(default_factory=list)  # s of the last rounds (changes of x), [b, P] each
    changes: list[Tensor] = field(default_factory=list)  # y of the last rounds (changes of the gradient), [b, P] each
    rho: list[Tensor] = field(default_factory=list)  # 1 / s.y of the last rounds, [b] each; 0 if rejected or s.y <= 0

    def keep(self, rows: Tensor) -> "_State":
        """Return the state of these rows (bool [b])."""
        kept: dict[str, Any] = {
            name: [tensor[rows] for tensor in value] if isinstance(value, list) else value[rows]
            for name, value in vars(self).items()
        }
        return _State(**kept)


def minimise(objective: Problem, start: Tensor, tolerance: float, rounds: int) -> Tensor:
    """Return the minimisers [B, P] found from `start` [B, P].

    A problem has converged if the largest entry of its gradient is at most `tolerance` and the quadratic model predicts
    a small decrease, see GAP. The gradient alone does not suffice: a loss near 0 has a small gradient far from its
    minimum. A problem also ends if its step is shorter than SHORTEST, or after `rounds` rounds.
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
        _advance(state, objective, refresh=number % REFRESH == 0)
    found[state.problem] = state.x
    return found


def _advance(state: _State, objective: Problem, refresh: bool) -> None:
    """Try each problem's step. Take the step if the value decreases enough, otherwise shorten it for the next round."""
    slope = _dot(state.gradient, state.direction)
    x = state.x + state.step[:, None] * state.direction
    value, gradient, diagonal = objective(x, state.problem, refresh)
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
    # A rejected step on a convex function went past a point with slope zero. The secant through the slopes at the
    # step's two ends estimates this point.
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
    """Return minus the estimated inverse Hessian times the gradient [b, P], by the two-loop recursion."""
    q = -state.gradient
    alphas = []
    history = list(zip(state.moves, state.changes, state.rho, strict=True))
    for s, y, rho in reversed(history):
        alphas.append(rho * _dot(s, q))
        q = q - alphas[-1][:, None] * y
    q = q / state.diagonal
    for (s, y, rho), alpha in zip(history, reversed(alphas), strict=True):
        q = q + (alpha - rho * _dot(y, q))[:, None] * s
    return q


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(dim=1)
