"""Free embeddings under any objective: no data, no towers, so a new objective is tried in a minute.

Each of the N images and N texts of a known joint distribution (`joint`) has a vector of its own, normalised;
batches are drawn from a training set without repeats. What is learned is measured on the distribution itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from clipx import geometry
from clipx.config.setting import AT_LEAST_0, AT_LEAST_1, POSITIVE, Rule
from clipx.theory.claims import Check, CheckedClaim
from clipx.theory.experiment import COUNT, OPEN_SHARE, Cells, Settings, out_of_range
from clipx.theory.joint import Joint, make, nce
from clipx.types import Embeddings, Loss, Progress
from clipx.utils.registry import lookup


class Memory:
    """Per-sample columns, float64, rows read and written by id."""

    def __init__(self, columns: Mapping[str, float], n: int) -> None:
        self.columns = {name: torch.full((n,), start, dtype=torch.float64) for name, start in columns.items()}

    def read(self, ids: Tensor) -> dict[str, Tensor]:
        return {name: values[ids] for name, values in self.columns.items()}

    def write(self, ids: Tensor, rows: Mapping[str, Tensor]) -> None:
        for name, values in rows.items():
            self.columns[name][ids] = values.detach()

    def max(self, column: str) -> float:
        return float(self.columns[column].max())


class LossFunction(Protocol):
    """What `clipx.objectives.build` returns; the two packages do not import each other."""

    columns: dict[str, float]

    def __call__(self, embeddings: Embeddings, rows: Mapping[str, Tensor], progress: Progress) -> Loss: ...
    def end_step(self, table: Memory) -> None: ...
    def end_epoch(self, table: Memory) -> None: ...


Factory = Callable[[int], LossFunction]  # number of training pairs -> a fresh objective


@dataclass(frozen=True, kw_only=True)
class FreeSettings(Settings):
    """Defaults: 48 concepts in 8 dimensions, hard enough to tell objectives apart; a third of a second a row."""

    objectives: tuple[str, ...] = ()  # by name; all if empty
    K: int = 48  # concepts
    m: int = 4  # images, and texts, of a concept
    skew: float = 1.0  # popularity of concept k proportional to 1/k^skew
    noise: float = 0.2  # share of mismatched pairs
    n: int = 2048  # training pairs
    E: int = 8  # dimensions
    taus: tuple[float, ...] = (0.05, 0.2)  # fixed; learned from tau0 always comes as well
    tau0: float = 0.07
    batch_size: int = 128
    epochs: int = 15
    lr: float = 0.03  # of Adam
    seed: int = 0

    RULES: ClassVar[Mapping[str, Rule]] = {
        "K": COUNT,
        "m": AT_LEAST_1,
        "skew": AT_LEAST_0,
        "noise": OPEN_SHARE,
        "n": COUNT,
        "E": COUNT,
        "taus": (lambda v: 0.01 <= v < float("inf"), "0.01 or more"),
        "tau0": (lambda v: 0.01 <= v < float("inf"), "0.01 or more"),
        "batch_size": COUNT,
        "epochs": AT_LEAST_1,
        "lr": POSITIVE,
        "seed": AT_LEAST_0,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size > self.n:
            raise out_of_range("batch_size", self.batch_size, f"2..n = {self.n}")


@dataclass(frozen=True)
class Row:
    """One objective at one temperature."""

    objective: str
    temperature: str
    numbers: dict[str, float]


@dataclass(frozen=True)
class FreeResult:
    settings: FreeSettings
    mutual_information: float
    rows: list[Row]


def solve(settings: FreeSettings, known: Mapping[str, Factory]) -> FreeResult:
    """Every objective at every temperature, from the same start on the same batches.

    Raises:
        UserError: an objective that is not among the known ones.
    """
    objectives = {name: lookup(known, name, "objectives") for name in settings.objectives or known}
    generator = torch.Generator().manual_seed(settings.seed)
    joint = make(settings.K, settings.m, settings.skew, settings.noise, settings.n, generator)
    temperatures = {f"{tau:g}": tau for tau in settings.taus} | {"learned": None}
    rows = []
    for name, factory in objectives.items():
        for label, tau in temperatures.items():
            learned = train(settings, joint, factory(settings.n), tau)
            rows.append(Row(name, label, measured(*learned, joint)))
    return FreeResult(settings, joint.mutual_information, rows)


def train(
    settings: FreeSettings, joint: Joint, objective: LossFunction, tau: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Images [N, E], texts [N, E], both normalised, and 1/tau; tau is learned if None."""
    generator = torch.Generator().manual_seed(settings.seed)
    raw = torch.randn(2, len(joint.p), settings.E, generator=generator, dtype=torch.float64).requires_grad_()
    nu = (
        torch.tensor(settings.tau0 if tau is None else tau, dtype=torch.float64).log().neg().requires_grad_(tau is None)
    )
    bias = torch.tensor(-10.0, dtype=torch.float64, requires_grad=True)  # SigLIP's start; other terms do not read it
    optimizer = torch.optim.Adam([p for p in (raw, nu, bias) if p.requires_grad], lr=settings.lr)
    memory, per_epoch = Memory(objective.columns, settings.n), settings.n // settings.batch_size
    for step in range(settings.epochs * per_epoch):
        epoch, at = divmod(step, per_epoch)
        if at == 0:
            order = torch.randperm(settings.n, generator=generator)
        ids = order[at * settings.batch_size : (at + 1) * settings.batch_size]
        image, text = F.normalize(raw[0, joint.image[ids]], dim=1), F.normalize(raw[1, joint.text[ids]], dim=1)
        embeddings = Embeddings(image, text, nu.exp(), ids, joint.label[ids], bias)
        loss = objective(
            embeddings, memory.read(ids), Progress(step, settings.epochs * per_epoch, epoch, settings.epochs)
        )
        optimizer.zero_grad()
        torch.autograd.backward([loss.total])
        optimizer.step()
        with torch.no_grad():
            nu.clamp_(max=float(torch.tensor(100.0).log()))
        memory.write(ids, loss.rows)
        objective.end_step(memory)
        if at == per_epoch - 1:
            objective.end_epoch(memory)
    unit = F.normalize(raw.detach(), dim=2)
    return unit[0], unit[1], nu.detach().exp()


def measured(image: Tensor, text: Tensor, scale: Tensor, joint: Joint) -> dict[str, float]:
    """Gap, uniformity, mean margin, share of concepts retrieved (all; the rarer half), distance of the loss to -I.

    `excess` (nats) takes g = s/tau at the objective's own temperature, `best tau` at the one that suits s best.
    """
    s, other = image @ text.T, joint.concept[:, None] != joint.concept
    own = s.diagonal()[:, None]
    margin = torch.cat([(own - s)[other], (own - s.T)[other]]).mean()
    hits = torch.stack([(joint.concept[s.argmax(d)] == joint.concept).double() for d in (0, 1)]).mean(0)
    rare = joint.concept >= len(joint.popularity) // 2
    information = joint.mutual_information
    scales = torch.logspace(-1, 2, 61, dtype=torch.float64)
    return {
        "gap": geometry.modality_gap(image, text),
        "uniformity": geometry.uniformity(image, text),
        "margin": float(margin),
        "retrieval": float(hits.mean()),
        "rare half": float(hits[rare].mean()),
        "1/tau": float(scale),
        "excess": float(nce(scale * s, joint.p)) + information,
        "best tau": float(min(nce(c * s, joint.p) for c in scales)) + information,
    }


def claims(result: FreeResult) -> list[CheckedClaim]:
    """The bound that every row must keep; no claim of a paper, only a fault of ours could break it."""
    lowest = min(row.numbers["best tau"] for row in result.rows)
    statement = "No objective's similarities bring the symmetric InfoNCE below -I(X; Y) (paper 5, Proposition 4.1)"
    return [CheckedClaim("", statement, [Check("smallest loss + I(X; Y)", lowest, low=-1e-9)])]


def table(result: FreeResult) -> list[Cells]:
    """One line an objective and temperature."""
    return [{"objective": row.objective, "tau": row.temperature, **row.numbers} for row in result.rows]
