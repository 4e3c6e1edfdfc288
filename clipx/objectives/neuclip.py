"""NeuCLIP: a network predicts the normaliser of a global contrastive loss (Wei et al., ICLR 2026, arXiv 2511.08417).

s = image @ text.T [B, B]. Image anchors have D_ij = s_ij - s_ii and g_i = 1/(B-1) sum_{j != i} exp(D_ij / tau). For any
alpha_i,

    log(eps + g_i) <= exp(-alpha_i) (eps + g_i) + alpha_i - 1,   equal for alpha_i = log(eps + g_i)

The right side is linear in g_i, so a batch estimates its gradient without bias. alpha_i is predicted from m prototypes
of all texts, the rows w_k of W [m, E]:

    alpha_i = log( eps + 1/m sum_k exp( (<x_i, w_k/|w_k|> - s_ii) / tau ) )
    L = tau/B sum_i ( exp(-alpha_i) (eps + g_i) + alpha_i - 1 ) + rho tau

Text anchors use s_ji and prototypes of the images; both directions are added. A step first moves W `updates` times down
the gradient of L, by AdaGrad, then the towers and tau with this alpha. Every `restart` steps, W starts again from
embeddings: the batches of the first m/B steps replace its rows, B at a time. Rows that are not filled yet are left out.
Embeddings must have unit length: otherwise no alpha is near log(eps + g_i). A process stores its anchors' similarities
to the m prototypes.

The paper has m = 4096, 10 updates, a restart every 500 steps, and AdaGrad. We could read neither the paper nor the
authors' code, only public summaries of the paper. They do not say the following, which we chose: AdaGrad's step size
eta; that alpha passes no gradient to the towers and tau (at its optimum this gradient is 0); how a batch smaller than m
fills W; and rho and eps, as in FastCLIP.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from clipx.config.setting import AT_LEAST_0, AT_LEAST_1, POSITIVE, check_range
from clipx.objectives.base import Rows, Term, TermOutput
from clipx.objectives.sogclr import SIDES, Contrast
from clipx.sample_table import SampleTable
from clipx.types import Embeddings, Part, Progress

EPS_ADAGRAD = 1e-10  # torch's


@dataclass(frozen=True)
class Prototypes:
    """The network that predicts alpha for the anchors of one side."""

    W: Tensor  # [m, E], prototypes of the other side
    squares: Tensor  # [m, E], AdaGrad's sums of squared gradients

    def refilled(self, first: int, batch: Tensor) -> "Prototypes":
        """Replace the rows from `first` on, if there are any, by the embeddings [B, E] of a batch."""
        rows = slice(first, first + len(batch))
        W, squares = self.W.clone(), self.squares.clone()
        W[rows], squares[rows] = batch[: len(W[rows])], 0.0
        return Prototypes(W, squares)

    def updated(self, gradient: Tensor, eta: float) -> "Prototypes":
        """Take a step of AdaGrad."""
        squares = self.squares + gradient.square()
        return Prototypes(self.W - eta * gradient / (squares.sqrt() + EPS_ADAGRAD), squares)


@dataclass(frozen=True)
class Anchors:
    """One direction of a batch, without gradients; each process computes its part of the anchors."""

    x: Tensor  # [B, E]
    s_own: Tensor  # [B], s_ii
    log_g: Tensor  # [B], log(eps + g_i)
    scale: Tensor  # [], 1/tau
    log_eps: float
    part: Part

    def alpha(self, W: Tensor) -> Tensor:
        """Return alpha of this process's anchors."""
        x, s_own = self.x[self.part.rows], self.s_own[self.part.rows]
        z = self.scale * (x @ F.normalize(W, dim=1).T - s_own[:, None])
        filled = (W != 0).any(dim=1)
        log_mean = z.masked_fill(~filled, -torch.inf).logsumexp(dim=1) - filled.sum().to(z.dtype).log()
        return torch.logaddexp(log_mean, z.new_full((), self.log_eps))

    def gradient(self, W: Tensor) -> Tensor:
        """Return the gradient of L/tau by W, [m, E]."""
        W = W.detach().requires_grad_()
        with torch.enable_grad():
            alpha = self.alpha(W)
            loss = bound(self.log_g[self.part.rows], alpha).sum() / len(self.x)
        return self.part.sum(torch.autograd.grad(loss, W)[0])

    def whole_alpha(self, W: Tensor) -> Tensor:
        """Return alpha of all anchors, [B]."""
        alpha = torch.zeros_like(self.s_own)
        alpha[self.part.rows] = self.alpha(W)
        return self.part.sum(alpha)


def bound(log_g: Tensor, alpha: Tensor) -> Tensor:
    """Return exp(-alpha) (eps + g) + alpha - 1, an upper bound of log(eps + g)."""
    return (log_g - alpha).exp() + alpha - 1


class NeuclipTerm(Term):
    """The value is tau/B sum_i (exp(-alpha_i) (eps + g_i) + alpha_i - 1) + rho tau, added over both directions.

    Args:
        rho: a larger rho gives a smaller tau.
        eps: added to g_i.
        prototypes: m.
        updates: number of AdaGrad steps on W for each batch.
        restart: W starts again from embeddings every so many steps.
        eta: step size of AdaGrad.
    """

    needs = ("progress",)

    def __init__(
        self,
        rho: float = 6.5,
        eps: float = 1e-14,
        prototypes: int = 4096,
        updates: int = 10,
        restart: int = 500,
        eta: float = 0.01,
    ) -> None:
        check_range("objective.neuclip.eps", eps, POSITIVE)
        check_range("objective.neuclip.prototypes", prototypes, AT_LEAST_1)
        check_range("objective.neuclip.updates", updates, AT_LEAST_0)
        check_range("objective.neuclip.restart", restart, AT_LEAST_1)
        check_range("objective.neuclip.eta", eta, AT_LEAST_0)
        self.rho, self.log_eps, self.m = rho, math.log(eps), prototypes
        self.updates, self.restart, self.eta = updates, restart, eta
        self.state: dict[str, float | Tensor] = {}  # W and squares of both sides; the first batch sets the width
        self.next_state: dict[str, Tensor] = {}  # of the step that is being computed

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        contrast = Contrast(embeddings, "neuclip")
        sides = {"image": embeddings.image.detach(), "text": embeddings.text.detach()}
        s_own = (sides["image"] * sides["text"]).sum(dim=1)
        alphas, brackets = {}, []
        for anchor, other in SIDES:
            log_g = torch.logaddexp(contrast.log_g[anchor], s_own.new_full((), self.log_eps))
            anchors = Anchors(sides[anchor], s_own, log_g, contrast.scale, self.log_eps, embeddings.part)
            alphas[anchor] = self._predict(anchor, anchors, sides[other], progress.step)
            brackets.append(bound(log_g, alphas[anchor]).mean())
        value = (brackets[0] + brackets[1] + 2 * self.rho) / embeddings.scale
        return contrast.surrogate_loss(value, alphas, of_scale=1.0)[0], {}

    def _predict(self, anchor: str, anchors: Anchors, others: Tensor, step: int) -> Tensor:
        """Update W on this batch, and return the alpha [B] that it predicts. `end_step` stores the new W."""
        network = self._prototypes(anchor, others).refilled(step % self.restart * len(others), others)
        for _ in range(self.updates):
            network = network.updated(anchors.gradient(network.W), self.eta)
        self.next_state |= {f"W_{anchor}": network.W, f"squares_{anchor}": network.squares}
        return anchors.whole_alpha(network.W)

    def _prototypes(self, anchor: str, like: Tensor) -> Prototypes:
        """Return the network of the last step, or one of zeros in the first step."""
        tensors = [self.state.get(f"{name}_{anchor}") for name in ("W", "squares")]
        found = [t.to(like) if isinstance(t, Tensor) else like.new_zeros(self.m, like.shape[1]) for t in tensors]
        return Prototypes(*found)

    def end_step(self, table: SampleTable) -> None:
        for name, new in self.next_state.items():
            old = self.state.get(name)
            old = old.to(new) if isinstance(old, Tensor) else torch.zeros_like(new)
            self.state = {**self.state, name: torch.where(new.isfinite().all(), new, old)}  # else it could not recover
        self.next_state = {}
