"""Gradients that DDP needs from every term, settings that are refused, and notes on settings without effect."""

import re

import pytest
import torch

from clipx import objectives
from clipx.errors import UserError
from clipx.objectives.base import Rows, Term, TermOutput, build_objective
from clipx.sample_table import SampleTable
from clipx.types import Embeddings, Progress
from tests.helpers.pairs import START, Terms, embed, embeddings, fresh, pairs, progress, random_pairs


@pytest.mark.parametrize("term", objectives.TERMS)
def test_temperature_and_bias_always_get_a_gradient_as_ddp_requires(term: str) -> None:
    scale = torch.tensor(10.0, dtype=torch.float64, requires_grad=True)
    batch = embed(*random_pairs(6, 5), scale, [1, 1, 2, 0, 3, 2])
    bias = torch.tensor(-10.0, dtype=torch.float64, requires_grad=True)
    batch.bias = bias
    objective = objectives.build({term: {}}, num_samples=6)
    table = SampleTable(objective.columns, 6, dtype=torch.float64)
    objective(batch, table.read(torch.arange(6)), START).total.backward()  # type: ignore[no-untyped-call]
    assert scale.grad is not None and bias.grad is not None
    assert (bias.grad != 0) == ("bias" in objectives.TERMS[term].needs)
    assert (scale.grad != 0) == objective.learns_temperature


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({}, "objective has no term"),
        ({"clipp": {}}, "objective.clipp is not known; did you mean 'clip'"),
        ({"clip": {"avrage": True}}, "objective.clip.avrage is not known; did you mean 'average'"),
        ({"clip": {"average": "off"}}, "objective.clip.average='off' must be true or false"),
        ({"clip": {}, "positive": 0}, "objective.positive=0 must map parameters to values, as in {'weight': 0.5}"),
        ({"clip": {"weight": "much"}}, "objective.clip.weight='much' must be a number"),
        ({"dcl": {"tau_plus": -0.1}}, "objective.dcl.tau_plus=-0.1 is out of range; allowed: 0 or more, below 1"),
        ({"dcl": {"tau_plus": float("nan")}}, "objective.dcl.tau_plus=nan is out of range"),
        ({"clip": {"weight": float("inf")}}, "objective.clip.weight=inf is out of range; allowed: finite numbers"),
        ({"fastclip_v3": {"rho": float("nan")}}, "objective.fastclip_v3.rho=nan is out of range"),
        ({"fastclip_v2": {"eta": -1.0}}, "objective.fastclip_v2.eta=-1.0 is out of range; allowed: 0 or more"),
        ({"keyword": {"g": "log"}}, "objective.keyword.g=log is not known; did you mean 'log1p'"),
        ({"rank": {"crossmodal": False, "inmodal": False}}, "rank.crossmodal=false and inmodal=false leave nothing"),
        ({"nuclr": {"gamma": 0.0}}, "objective.nuclr.gamma=0.0 is out of range"),
        ({"nuclr": {"freeze_epochs": -1}}, "objective.nuclr.freeze_epochs=-1 is out of range"),
        ({"fastclip_v2": {"tau0": 2.0}}, "objective.fastclip_v2.tau0=2.0 is out of range; allowed: 0.01..1"),
        ({"fastclip_v3": {"eps": 0.0}}, "objective.fastclip_v3.eps=0.0 is out of range; allowed: more than 0"),
        ({"clip_refine": {"alpha": 1.5}}, "objective.clip_refine.alpha=1.5 is out of range; allowed: 0..1"),
        ({"align_clip": {"images": False, "texts": False}}, "align_clip.images=false and texts=false leave nothing"),
        ({"nuclr": {"zeta0": 0.1, "xi0": 0.0}}, "nuclr.xi0=0 is below objective.nuclr.zeta0=0.1; allowed: 0.1 or more"),
    ],
)
def test_wrong_settings_of_a_term_are_refused(terms: Terms, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        objectives.build(terms, num_samples=9)


@pytest.mark.parametrize("term", ["sogclr", "nuclr", "fastclip_v1", "fastclip_v2", "fastclip_v3"])
def test_terms_with_columns_need_two_pairs_in_the_data_set_and_in_a_batch(term: str) -> None:
    """sogclr with own_pair needs two as well, because the mean over B - 1 = 0 negatives is not defined."""
    with pytest.raises(UserError, match="needs 2 training pairs"):
        objectives.build({term: {}}, num_samples=1)
    parameters: dict[str, object] = {"own_pair": True} if term == "sogclr" else {}
    objective, table = fresh({term: parameters}, 4)
    batch = embeddings(*pairs(1), torch.arange(1), 0.1)
    with pytest.raises(UserError, match=f"objective={term} needs batches of 2 pairs or more, got 1"):
        objective(batch, table.read(torch.arange(1)), progress())


def test_notes_name_settings_without_effect_in_a_short_run() -> None:
    objective = objectives.build({"clip": {}, "nuclr": {"freeze_epochs": 5}}, num_samples=6)
    assert objective.learns_temperature  # because of clip
    assert objective.notes(total_epochs=6) == []
    (frozen,) = objective.notes(total_epochs=5)
    assert "freeze_epochs=5 covers all 5 epochs of the run: zeta is never updated" in frozen
    assert len(objective.notes(total_epochs=1)) == 2


class Listed(Term):
    """A term with a parameter, `sizes`, of a type that only the term itself can check."""

    def __init__(self, sizes: list[float] | None = None, t: "int | float | None" = None) -> None:
        self.sizes = sizes


def test_parameters_of_the_wrong_type_are_refused() -> None:
    table = {"listed": Listed}
    build_objective(table, {"listed": {"sizes": [1, 2], "t": None}}, 6)
    build_objective(table, {"listed": {"t": 1.5}}, 6)
    with pytest.raises(UserError, match=r"objective.listed.t='1' must be a whole number or a number or null"):
        build_objective(table, {"listed": {"t": "1"}}, 6)


class Own(Term):
    """A term of a plug-in that returns `output`, with other declarations if given."""

    def __init__(self, output: object = None, needs: object = (), columns: object = None) -> None:
        self.output = output
        self.needs, self.columns = needs, columns or {}  # type: ignore[assignment]

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        return self.output  # type: ignore[return-value]


VALUE, SIX = torch.tensor(1.0), torch.zeros(6)


@pytest.mark.parametrize(
    ("columns", "output", "returned"),
    [
        ({}, VALUE, "tensor []"),
        ({}, (SIX, {}), "('tensor [6]', {})"),
        ({}, (1.0, {}), "(1.0, {})"),
        ({}, (VALUE, None), "('tensor []', None)"),
        ({"u": 0.0}, (VALUE, {}), "('tensor []', {})"),
        ({"u": 0.0}, (VALUE, {"v": SIX}), "('tensor []', {'v': 'tensor [6]'})"),
        ({"u": 0.0}, (VALUE, {"u": VALUE}), "('tensor []', {'u': 'tensor []'})"),
    ],
)
def test_a_term_that_returns_something_else_is_named(columns: Terms, output: object, returned: str) -> None:
    objective = build_objective({"own": Own}, {"own": {"output": output, "columns": columns}}, 6)
    batch = embed(*random_pairs(6, 4), torch.tensor(10.0, dtype=torch.float64))
    with pytest.raises(UserError, match=r"^objective.own: the term must return") as raised:
        objective(batch, dict.fromkeys(columns, SIX))
    assert str(raised.value).endswith(f"it returned {returned}")


def test_a_term_without_a_gradient_is_refused_where_a_step_would_learn_from_it() -> None:
    objective = build_objective({"own": Own}, {"own": {"output": (VALUE, {})}}, 6)
    image, text = random_pairs(6, 4)
    assert objective(embed(image, text, torch.tensor(10.0, dtype=torch.float64)), {}).total == VALUE
    with pytest.raises(UserError, match=r"^objective.own: its value has no gradient"):
        objective(embed(image.requires_grad_(), text, torch.tensor(10.0, dtype=torch.float64)), {})


class Required(Term):
    """A term with a parameter without default and without `__call__`."""

    def __init__(self, x: float) -> None:
        self.x = x


def test_wrong_declarations_of_a_term_are_named() -> None:
    table: dict[str, type[Term]] = {"own": Own, "other": Own, "required": Required}
    wrong: list[tuple[Terms, str]] = [
        ({"own": {"needs": "bias"}}, "objective.own: needs='bias' must be a tuple; allowed in it: bias, label"),
        ({"own": {"needs": ("tau",)}}, "objective.own: needs=('tau',) must be a tuple; allowed in it: bias, label"),
        ({"own": {"columns": ["u"]}}, "objective.own: columns=['u'] must be a dict"),
        ({name: {"columns": {"u": 0.0}} for name in ("own", "other")}, "objective own+other write the column u"),
        ({"required": {}}, "objective.required.x has no default: set it"),
    ]
    for terms, message in wrong:
        with pytest.raises(UserError, match=re.escape(message)):
            build_objective(table, terms, 6)
    batch = embed(*random_pairs(6, 4), torch.tensor(10.0, dtype=torch.float64))
    with pytest.raises(UserError, match=r"the term Required has no __call__"):
        build_objective(table, {"required": {"x": 1.0}}, 6)(batch)
