"""Free embeddings: train any objective on a known distribution in seconds, without data or encoders.

K concepts with popularity pi_k proportional to 1/k^skew have m images and m texts each:

    p(x, y) = (1 - noise) sum_k pi_k p(x | k) p(y | k) + noise p(x) p(y),   p(. | k) uniform over the m instances.

Two pairs of the same concept in a batch are false negatives of each other; a share `noise` of the pairs is mismatched.
Each image and each text has a free, normalised embedding. Batches come from a training set drawn from p; the metrics
use p itself. For objectives with groups, pairs whose texts have the same concept form a group. For objectives with a
teacher, the teacher's embeddings are one-hot vectors of the concepts. The negative caption of a pair is a text of the
next concept.
"""

import math
from dataclasses import dataclass
from itertools import cycle
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clipx import geometry, objectives
from clipx.config.presets import OBJECTIVES
from clipx.config.setting import POSITIVE, Rule, at_least
from clipx.objectives.base import Objective
from clipx.sample_table import SampleTable
from clipx.theory.claims import Check, CheckedClaim
from clipx.theory.experiment import OPEN_SHARE, Settings, TableRow, out_of_range
from clipx.theory.paper5.information import mutual_information
from clipx.theory.paper5.pmi import nce
from clipx.types import Embeddings, Progress, TeacherEmbeddings
from clipx.utils.figures import GREY, Figures, ordered_colours, panels
from clipx.utils.registry import lookup

TAU: Rule = at_least(0.01)
TEACHER_SCALE = torch.tensor(10.0, dtype=torch.float64)  # 1/tau of the teacher
PANELS = {  # metric -> title in the figure
    "gap": "modality gap\n(distance)",
    "uniformity": "uniformity\n(-W2, 0 is best)",
    "margin": "mean margin\n(similarity)",
    "retrieval": "concept retrieval\n(accuracy)",
    "rare half": "concept retrieval,\nrarer half (accuracy)",
    "best tau": "loss above -I\n(nats, best tau)",
}


@dataclass(frozen=True, kw_only=True)
class FreeEmbeddingSettings(Settings):
    """The defaults, 48 concepts in 8 dimensions, are hard enough to separate the objectives. A trial takes 0.3 s."""

    objectives: tuple[str, ...] = ()  # names; all if empty
    K: Annotated[int, at_least(2)] = 48  # concepts
    m: Annotated[int, at_least(1)] = 4  # images, and texts, per concept
    skew: Annotated[float, at_least(0)] = 1.0  # exponent of the popularity
    noise: Annotated[float, OPEN_SHARE] = 0.2  # share of mismatched pairs; above 0, so that p(x, y) > 0
    n: Annotated[int, at_least(2)] = 2048  # training pairs
    E: Annotated[int, at_least(2)] = 8  # embedding dimension
    taus: Annotated[tuple[float, ...], TAU] = (0.05, 0.2)  # fixed temperatures; solve adds a learned one
    tau0: Annotated[float, TAU] = 0.07  # initial value of the learned temperature
    batch_size: Annotated[int, at_least(2)] = 128
    epochs: Annotated[int, at_least(1)] = 15
    lr: Annotated[float, POSITIVE] = 0.03  # of Adam
    seed: Annotated[int, at_least(0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size > self.n:
            raise out_of_range("batch_size", self.batch_size, f"2..n = {self.n}")


@dataclass(frozen=True)
class JointDistribution:
    """p(x, y) over N = K m images and N texts, grouped by concept, and n training pairs drawn from it."""

    p: Tensor  # [N, N], images by texts
    concept: Tensor  # int64 [N], of image i and of text i
    popularity: Tensor  # [K]
    image: Tensor  # int64 [n], index of each training pair's image
    text: Tensor  # int64 [n]
    label: Tensor  # int64 [n], concept + 1 if the text names its concept (every second text of a concept), else 0


@dataclass(frozen=True)
class Trial:
    """Metrics of one objective at one temperature."""

    objective: str
    temperature: str
    metrics: dict[str, float]


@dataclass(frozen=True)
class FreeEmbeddingResult:
    settings: FreeEmbeddingSettings
    trials: list[Trial]


def build_joint(settings: FreeEmbeddingSettings, generator: torch.Generator) -> JointDistribution:
    """Compute the distribution of the module's docstring and draw its training pairs."""
    K, m, noise = settings.K, settings.m, settings.noise
    popularity = torch.arange(1, K + 1, dtype=torch.float64) ** -settings.skew
    popularity /= popularity.sum()
    concept = torch.arange(K).repeat_interleave(m)
    marginal = popularity[concept] / m
    same = concept[:, None] == concept
    p = (1 - noise) * torch.where(same, (marginal / m)[:, None], 0.0) + noise * torch.outer(marginal, marginal)
    drawn = torch.multinomial(p.flatten(), settings.n, replacement=True, generator=generator)
    image, text = drawn // len(p), drawn % len(p)
    label = torch.where(text % m % 2 == 0, concept[text] + 1, 0)
    return JointDistribution(p, concept, popularity, image, text, label)


def known_objectives() -> dict[str, dict[str, Any]]:
    """Return name -> terms: the presets, and one objective for each term that no preset uses alone."""
    presets = [list(terms) for terms in OBJECTIVES.values()]
    return OBJECTIVES | {name: {name: {}} for name in objectives.TERMS if [name] not in presets}


def solve(settings: FreeEmbeddingSettings) -> FreeEmbeddingResult:
    """Train every objective at every temperature from the same start on the same batches.

    Raises UserError for an unknown objective.
    """
    known = known_objectives()
    chosen = {name: lookup(known, name, "objectives") for name in settings.objectives or known}
    joint = build_joint(settings, torch.Generator().manual_seed(settings.seed))
    temperatures = {f"{tau:g}": tau for tau in settings.taus} | {"learned": None}
    trials = [
        Trial(name, label, evaluate(*train(settings, joint, objectives.build(terms, settings.n), tau), joint))
        for name, terms in chosen.items()
        for label, tau in temperatures.items()
    ]
    return FreeEmbeddingResult(settings, trials)


def train(
    settings: FreeEmbeddingSettings, joint: JointDistribution, objective: Objective, tau: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Train the embeddings; return normalised images [N, E], texts [N, E] and 1/tau. tau=None learns tau."""
    generator = torch.Generator().manual_seed(settings.seed)
    raw = torch.randn(2, len(joint.p), settings.E, generator=generator, dtype=torch.float64).requires_grad_()
    nu = torch.tensor(settings.tau0 if tau is None else tau, dtype=torch.float64).log().neg()  # log(1/tau)
    nu.requires_grad_(tau is None)
    bias = torch.tensor(-10.0, dtype=torch.float64, requires_grad=True)  # SigLIP's initial value
    optimizer = torch.optim.Adam([p for p in (raw, nu, bias) if p.requires_grad], lr=settings.lr)
    table = SampleTable(objective.columns, settings.n, dtype=torch.float64)
    concepts = F.one_hot(joint.concept, settings.K).to(raw.dtype)
    per_epoch = settings.n // settings.batch_size
    for step in range(settings.epochs * per_epoch):
        epoch, at = divmod(step, per_epoch)
        if at == 0:
            order = torch.randperm(settings.n, generator=generator)
        ids = order[at * settings.batch_size : (at + 1) * settings.batch_size]
        image, text = F.normalize(raw[0, joint.image[ids]], dim=1), F.normalize(raw[1, joint.text[ids]], dim=1)
        teacher = TeacherEmbeddings(concepts[joint.image[ids]], concepts[joint.text[ids]], TEACHER_SCALE)
        group = joint.concept[joint.text[ids]]
        negative = F.normalize(raw[1, (joint.text[ids] + settings.m) % len(joint.p)], dim=1)
        embeddings = Embeddings(
            image, text, nu.exp(), ids, joint.label[ids], bias, group=group, teacher=teacher, negative_text=negative
        )
        progress = Progress(step, settings.epochs * per_epoch, epoch, settings.epochs)
        loss = objective(embeddings, table.read(ids), progress)
        optimizer.zero_grad()
        torch.autograd.backward([loss.total])
        optimizer.step()
        with torch.no_grad():
            nu.clamp_(max=math.log(100))  # 1/tau <= 100, as CLIP
            table.write(ids, loss.rows)
        objective.end_step(table)
        if at == per_epoch - 1:
            objective.end_epoch(table)
    unit = F.normalize(raw.detach(), dim=2)
    return unit[0], unit[1], nu.detach().exp()


def evaluate(image: Tensor, text: Tensor, scale: Tensor, joint: JointDistribution) -> dict[str, float]:
    """Compute gap, uniformity, mean margin, retrieval accuracy (all concepts, rarer half) and distance to the bound.

    The distance to the bound is InfoNCE + I(X; Y) in nats. With the cosine similarities s, it is computed for the
    similarity g = scale * s (`excess`) and for the best scale (`best tau`).
    """
    s, other = image @ text.T, joint.concept[:, None] != joint.concept
    own = s.diagonal()[:, None]
    margin = torch.cat([(own - s)[other], (own - s.T)[other]]).mean()
    hits = torch.stack([(joint.concept[s.argmax(d)] == joint.concept).double() for d in (0, 1)]).mean(0)
    rare = joint.concept >= len(joint.popularity) // 2
    p = joint.p.numpy()
    information = mutual_information(p)
    scales = torch.logspace(-1, 2, 61, dtype=torch.float64)
    return {
        "gap": geometry.modality_gap(image, text),
        "uniformity": geometry.uniformity(image, text),
        "margin": float(margin),
        "retrieval": float(hits.mean()),
        "rare half": float(hits[rare].mean()),
        "1/tau": float(scale),
        "excess": nce((scale * s).numpy(), p)[0] + information,
        "best tau": min(nce((c * s).numpy(), p)[0] for c in scales) + information,
    }


def claims(result: FreeEmbeddingResult) -> list[CheckedClaim]:
    """Check the bound of paper 5, Proposition 4.1. A violation would be a bug."""
    lowest = min(trial.metrics["best tau"] for trial in result.trials)
    statement = "No objective brings the symmetric InfoNCE below -I(X; Y) (paper 5, Proposition 4.1)"
    return [CheckedClaim("", statement, [Check("smallest loss + I(X; Y)", lowest, low=-1e-9)])]


def table(result: FreeEmbeddingResult) -> list[TableRow]:
    """Return one row for each objective and temperature."""
    return [{"objective": trial.objective, "tau": trial.temperature, **trial.metrics} for trial in result.trials]


def draw(result: FreeEmbeddingResult) -> Figures:
    """Draw one row per objective, one panel per metric and one marker per temperature."""
    names = list(dict.fromkeys(trial.objective for trial in result.trials))
    temperatures = list(dict.fromkeys(trial.temperature for trial in result.trials))
    chance = 1 / result.settings.K
    lines = {"retrieval": (chance, "chance", ":"), "rare half": (chance, "chance", ":"), "best tau": (0, "bound", "--")}
    figure, grid = panels(len(PANELS), width=1.75, height=1.3 + 0.27 * len(names))
    for axes, (key, title) in zip(grid, PANELS.items(), strict=True):
        colours, markers = ordered_colours(len(temperatures)), cycle("os^Dv*Px")
        for label, colour, marker in zip(temperatures, colours, markers, strict=False):
            trials = [trial for trial in result.trials if trial.temperature == label]
            rows = [names.index(trial.objective) for trial in trials]
            values = [trial.metrics[key] for trial in trials]
            axes.plot(values, rows, marker, color=colour, label=f"tau {label}", alpha=0.85)
        axes.set(xlabel=title, ylim=(len(names) - 0.5, -0.5))
        axes.set_yticks(range(len(names)), names if axes is grid[0] else [""] * len(names))
        axes.margins(x=0.12)
        if key in lines:
            x, name, style = lines[key]
            axes.axvline(x, color=GREY, linestyle=style, linewidth=1)
            axes.annotate(name, (x, 0), rotation=90, va="top", color=GREY, fontsize=8)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(temperatures))
    return {"objectives": figure}
