"""Paper 1, Corollaries 5.7, 6.1 and Theorems 6.2, 6.3, A.1: the margin of CLIP and the error of the square loss.

On the case study of Definition 5.3 the margin of CLIP is O(tau), the positive term raises it to at least gamma/2, and
the square loss fails zero-shot. Theorem A.1 is in failure_rate.py.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from clipx.config.setting import POSITIVE, at_least
from clipx.theory.claims import Check, CheckedClaim
from clipx.theory.experiment import Array, Settings, out_of_range
from clipx.theory.paper1 import case_study, failure_rate
from clipx.theory.paper1.case_study import Descent, SyntheticPairs, descend
from clipx.theory.paper1.square_loss import SCORES, bayes_optimum, clip_embedding, top1_error


@dataclass(frozen=True, kw_only=True)
class MarginSettings(Settings):
    """Defaults: the simplest case in the proof of Theorem 6.2."""

    K: Annotated[int, (lambda v: 2 <= v <= 12, "2..12")] = 6  # classes; the errors are summed over 2^K prompt draws
    gamma: Annotated[float, (lambda v: 0 < v <= 2, "more than 0, at most 2")] = 0.5  # 1 - largest inner product
    gamma_square: Annotated[float, (lambda v: 0 < v < 1 / 3, "more than 0, less than 1/3")] = 0.3  # of Corollary 5.7
    xi: Annotated[float, at_least(0)] = 0.0  # length of the images' unique feature
    zeta: Annotated[float, at_least(0)] = 0.0  # length of the texts' unique feature
    taus: Annotated[tuple[float, ...], POSITIVE] = (0.1, 0.05, 0.02, 0.01)
    lambdas: Annotated[tuple[float, ...], POSITIVE] = (0.1, 1.0)  # weights of the positive term E||W x - y||^2
    equal_steps: Annotated[int, at_least(200)] = 3000  # steps of a separate descent, all of size 0.2 tau^2
    first_steps: Annotated[int, at_least(1)] = 1000  # first steps, of size 0.2 tau^2
    more_steps: Annotated[int, at_least(1)] = 6000  # later steps: size grows by 2% per step up to 0.05 (xi = zeta = 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma > self.K / (self.K - 1):
            raise out_of_range("gamma", self.gamma, f"at most K/(K-1) = {self.K / (self.K - 1):g} for K={self.K}")

    @property
    def has_unique_features(self) -> bool:
        return self.xi != 0 or self.zeta != 0


@dataclass(frozen=True)
class MarginResult:
    settings: MarginSettings
    equal: Descent  # CLIP at each tau, all steps of size 0.2 tau^2
    trained: dict[float, Descent]  # lambda (0 = CLIP) -> descent at each tau
    final: dict[float, Array]  # lambda -> final margin at each tau
    zeroshot_errors: dict[str, dict[str, float]]  # class geometry -> "loss, score" -> top-1 error


def solve(settings: MarginSettings) -> MarginResult:
    """Run gradient descent for every (tau, lambda) and evaluate the square loss at its Bayes optimum."""
    classes = case_study.equiangular(settings.K, settings.gamma)
    pairs = case_study.with_unique_features(classes, settings.xi, settings.zeta)
    tau = np.array(settings.taus)
    equal_sizes = np.tile(0.2 * tau**2, (settings.equal_steps, 1))
    trained = _train(settings, pairs, tau)
    return MarginResult(
        settings=settings,
        equal=descend(pairs, tau, np.zeros_like(tau), equal_sizes, _log_spaced(settings.equal_steps)),
        trained=trained,
        final={lam: _final_margin(settings, pairs, lam, descent) for lam, descent in trained.items()},
        zeroshot_errors={
            "one close pair": _zeroshot_errors(case_study.one_close_pair(settings.K, settings.gamma_square)),
            "equiangular": _zeroshot_errors(case_study.equiangular(settings.K, settings.gamma_square)),
        },
    )


def _train(settings: MarginSettings, pairs: SyntheticPairs, tau: Array) -> dict[float, Descent]:
    first, total = settings.first_steps, settings.first_steps + settings.more_steps
    growth = 1.02 ** np.clip(np.arange(total) - first + 1, 0, 2000)  # 1.02^2000 exceeds any bound
    # With unique features the curvature stays of order 1/tau^2, so larger steps would be unstable.
    largest = 0.2 * tau**2 if settings.has_unique_features else np.maximum(0.05, 0.2 * tau**2)
    sizes = np.minimum(0.2 * tau**2 * growth[:, None], largest)
    record = _log_spaced(total)
    return {lam: descend(pairs, tau, np.full_like(tau, lam), sizes, record) for lam in (0.0, *settings.lambdas)}


def _final_margin(settings: MarginSettings, pairs: SyntheticPairs, lam: float, descent: Descent) -> Array:
    """Return the margins after training, or at the minimum if small steps would take too long to reach it."""
    if lam > 0 and settings.has_unique_features:
        minima = [case_study.minimiser(pairs, tau, lam) for tau in settings.taus]
        return case_study.margin(np.array(minima), pairs)
    return np.asarray(descent.margin[-1])


def _zeroshot_errors(v: Array) -> dict[str, float]:
    errors = {f"square loss, {name}": top1_error(bayes_optimum(v), v, score) for name, score in SCORES.items()}
    clip = clip_embedding(v, tau=0.05, steps=1000)
    return errors | {"CLIP, inner product": top1_error(clip, v, SCORES["inner product"])}


def _log_spaced(steps: int) -> list[int]:
    return sorted({round(s) for s in np.geomspace(1, steps, 120)})


def claims(result: MarginResult) -> list[CheckedClaim]:
    """Check claims 1.10, 1.11 and 1.16."""
    settings, taus = result.settings, np.array(result.settings.taus)
    smallest = int(taus.argmin())
    late = result.equal.steps >= 100
    in_taus = result.equal.margin[late, smallest] / taus[smallest]
    fit = np.corrcoef(np.log(result.equal.steps[late]), in_taus)[0, 1] ** 2
    clip, half = result.final[0.0], settings.gamma / 2
    order = [
        # 2 separates CLIP from the positive term, whose ratio is 6.9 at the default settings
        Check("CLIP: largest / smallest of margin / tau", float((clip / taus).max() / (clip / taus).min()), high=2),
        Check(f"CLIP: R^2 of the margin against log(step), tau={taus[smallest]:g}", float(fit), low=0.99),
        Check(f"CLIP: margin at tau={taus[smallest]:g}, below gamma/2", float(clip[smallest]), high=half),
    ]
    order += [
        Check(f"positive term: margin at tau={tau:g}, lambda={lam:g}", float(result.final[lam][at]), low=half)
        for lam in settings.lambdas
        for at, tau in enumerate(settings.taus)
    ]
    bounds = {"square loss": (1 / (3 * settings.K), np.inf), "CLIP": (-np.inf, 1e-9)}
    zeroshot = [
        Check(f"{method}: top-1 error, {geometry}", error, *bounds[method.split(",")[0]])
        for geometry, errors in result.zeroshot_errors.items()
        for method, error in errors.items()
    ]
    return [
        CheckedClaim(
            "1.10",
            "The margin of CLIP is O(tau) up to logarithms (Theorem 6.2), with the positive term at least gamma/2 "
            "(Theorem 6.3)",
            order,
        ),
        CheckedClaim(
            "1.11",
            "The Bayes optimum of the square loss has a zero-shot top-1 error of at least 1/(3K) under three scores; "
            "the error of CLIP goes to 0 (Corollary 5.7, Remark 5.8)",
            zeroshot,
        ),
        CheckedClaim(
            "1.16",
            "alpha-hat_gamma exceeds alpha_gamma by 0 to sum p_k^2 for every gamma >= 0, by sum p_k^2 at gamma = 0 "
            "(Theorem A.1; the correct upper bound is 2 sum p_k^2)",
            failure_rate.checks(case_study.equiangular(settings.K, settings.gamma)),
        ),
    ]
