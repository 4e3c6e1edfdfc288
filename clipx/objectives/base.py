"""The interface of a loss term, and the objective as a weighted sum of terms. B is the global batch size."""

import inspect
import math
from collections.abc import Mapping
from dataclasses import replace
from types import UnionType
from typing import Any, Union, get_args, get_origin

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from clipx.config.setting import WORDS
from clipx.errors import UserError
from clipx.sample_table import SampleTable
from clipx.types import Embeddings, Loss, Progress, TeacherEmbeddings
from clipx.utils.registry import suggest
from clipx.utils.shapes import Shapes

Rows = Mapping[str, Tensor]  # column -> [B] per-sample values of the batch
TermOutput = tuple[Tensor, dict[str, Tensor]]  # unweighted value [] of the term, and column -> [B] new values

NEEDS = {  # input that a term may declare in `needs` -> how to provide this input
    "bias": "a learned logit bias: set temperature.bias (SigLIP: -10), or in your own loop Embeddings(bias=...)",
    "label": "keyword labels: set data.keywords, or in your own loop Embeddings(label=...)",
    "group": "groups of pairs that are positives of each other: set data.captions=each "
    "(folder, coco, karpathy, csv, tsv) or data=scenes, or in your own loop Embeddings(group=...)",
    "negative_text": "negative captions: use data.source=scenes, or shards with a list `negatives` in .json, or in "
    "your own loop Embeddings(negative_text=...)",
    "teacher": "a frozen teacher: set model.teacher=RUN or open_clip:NAME/TAG, or in your own loop "
    "Embeddings(teacher=...)",
    "progress": "the position in the run: "
    "objective(embeddings, rows, Progress(step, total_steps, epoch, total_epochs))",
}


class Term:
    """A loss over the global batch.

    Each `__init__` parameter of a subclass, except `num_samples`, is a setting `objective.TERM.PARAMETER`.
    `__init__` raises UserError for a value that is unknown or out of range.

    Attributes:
        columns: per-sample values that the term keeps, column name -> initial value.
        state: numbers, or tensors on the device, that `end_step` and `end_epoch` change; checkpoints store them.
        needs: inputs of the term besides image, text and scale; keys of NEEDS.
        learns_temperature: True if the term has a gradient for the scale 1/tau.
    """

    columns: Mapping[str, float] = {}
    state: Mapping[str, float | Tensor] = {}
    needs: tuple[str, ...] = ()
    learns_temperature = True

    def __call__(self, embeddings: Embeddings, rows: Rows, progress: Progress) -> TermOutput:
        """Return the unweighted value [] over the global batch, equal on all processes, and column -> new values [B].

        Return every column of `columns`. Do not modify the arguments. `embeddings.part` shares the work of the rows
        among the processes.
        """
        raise UserError(f"the term {type(self).__name__} has no __call__(embeddings, rows, progress)")

    def end_step(self, table: SampleTable) -> None:
        """Update `state` after the new rows were written."""

    def end_epoch(self, table: SampleTable) -> None:
        """Update `state` after the last step of an epoch."""

    def notes(self, total_epochs: int) -> list[str]:
        """Return log lines about settings that have no effect in a run of this length."""
        return []


def at_least_float32(embeddings: Embeddings) -> Embeddings:
    """Convert all float tensors to the dtype of the image embeddings, or to float32 if these have half precision."""
    dtype = torch.promote_types(embeddings.image.dtype, torch.float32)
    bias, negative_text = (t if t is None else t.to(dtype) for t in (embeddings.bias, embeddings.negative_text))
    image, text, scale = (t.to(dtype) for t in (embeddings.image, embeddings.text, embeddings.scale))
    teacher = embeddings.teacher
    if teacher is not None:
        teacher = TeacherEmbeddings(teacher.image.to(dtype), teacher.text.to(dtype), teacher.scale.to(dtype))
    return replace(
        embeddings, image=image, text=text, scale=scale, bias=bias, teacher=teacher, negative_text=negative_text
    )


class Objective:
    """The weighted sum of terms: total = sum of weight * term."""

    def __init__(self, terms: Mapping[str, Term], weights: Mapping[str, float]) -> None:
        self.terms = dict(terms)
        self.weights = dict(weights)
        self.columns: dict[str, float] = {}
        for term in terms.values():
            if both := self.columns.keys() & term.columns.keys():
                raise UserError(f"two terms of the objective {'+'.join(terms)} write the column {min(both)}")
            self.columns.update(term.columns)
        self.needs = {need for term in terms.values() for need in term.needs}
        self.learns_temperature = any(term.learns_temperature for term in terms.values())

    def check_settings(self, teacher: str | None, bias: float | None) -> None:
        """Raise UserError if a term needs a teacher or a logit bias, and the settings give none."""
        for need, given in (("teacher", teacher), ("bias", bias)):
            if need in self.needs and given is None:
                raise UserError(f"objective={'+'.join(self.terms)} needs {NEEDS[need]}")

    def __call__(self, embeddings: Embeddings, rows: Rows | None = None, progress: Progress | None = None) -> Loss:
        """Return the loss over the global batch, the value of each term and the new per-sample values.

        Args:
            embeddings: of the global batch; `sample_id` is not used.
            rows: column -> [B], read from a `clipx.sample_table.SampleTable`; only for terms with columns.
            progress: position in the run, for terms that need it.

        Raises UserError: a tensor has another type or shape than `Embeddings` says, a term needs an input that is not
        given, or its value has no gradient although the embeddings have one.
        """
        _check_embeddings(embeddings)
        given = vars(embeddings) | {"progress": progress}
        rows, progress = rows or {}, progress or Progress(step=0, total_steps=1, epoch=0, total_epochs=1)
        for name, term in self.terms.items():
            _check_needs(name, term, given, rows)
        embeddings = at_least_float32(embeddings)
        total = 0 * embeddings.scale  # DDP needs a gradient for every parameter, even if no term uses it
        if embeddings.bias is not None:
            total = total + 0 * embeddings.bias
        needs_gradient = torch.is_grad_enabled() and (embeddings.image.requires_grad or embeddings.text.requires_grad)
        values: dict[str, Tensor] = {}
        new_rows: dict[str, Tensor] = {}
        for name, term in self.terms.items():
            value, new = _checked_output(name, term, term(embeddings, rows, progress), len(embeddings.image))
            if needs_gradient and self.weights[name] and not value.requires_grad:
                raise UserError(f"objective.{name}: its value has no gradient, so nothing would be learned from it")
            total = total + self.weights[name] * value
            values[name] = value.detach()
            new_rows.update(new)
        return Loss(total=total, terms=values, rows=new_rows)

    def state(self) -> dict[str, dict[str, float | Tensor]]:
        """Return term name -> its state, for the checkpoint: numbers, and tensors in memory of the CPU."""
        return {
            name: {key: _on_host(value) for key, value in term.state.items()}
            for name, term in self.terms.items()
            if term.state
        }

    def load_state(self, state: Mapping[str, Mapping[str, float | Tensor]]) -> None:
        """Restore the result of `state`. Raises KeyError if the state of a term is missing."""
        for name, term in self.terms.items():
            if term.state or name in state:
                term.state = {key: _on_host(state[name][key]) for key in term.state or state[name]}

    def end_step(self, table: SampleTable) -> None:
        """Call `end_step` of every term, after the new rows were written."""
        for term in self.terms.values():
            term.end_step(table)

    def end_epoch(self, table: SampleTable) -> None:
        """Call `end_epoch` of every term."""
        for term in self.terms.values():
            term.end_epoch(table)

    def notes(self, total_epochs: int) -> list[str]:
        """Return the notes of all terms."""
        return [note for term in self.terms.values() for note in term.notes(total_epochs)]


def _on_host(value: float | Tensor) -> float | Tensor:
    """Return a number as a float, and a tensor with dimensions as a copy on the CPU."""
    return value.detach().cpu().clone() if isinstance(value, Tensor) and value.dim() else float(value)


def _check_embeddings(embeddings: Embeddings) -> None:
    """Raise UserError if a tensor has another type or shape than `Embeddings` says."""
    shapes = Shapes()
    for name, dims in (("image", "B E"), ("text", "B E"), ("scale", ""), ("bias", ""), ("negative_text", "B E")):
        if (value := getattr(embeddings, name)) is not None or name in ("image", "text", "scale"):
            shapes.check(f"Embeddings.{name}", value, dims)
    for name in ("sample_id", "label", "group"):
        if (value := getattr(embeddings, name)) is not None:
            shapes.check(f"Embeddings.{name}", value, "B", integer=True)
    if (teacher := embeddings.teacher) is not None:  # align_clip uses texts only, which may have another width
        for name, dims in (("image", "B E'"), ("text", "B E''"), ("scale", "")):
            shapes.check(f"TeacherEmbeddings.{name}", getattr(teacher, name), dims)


def _check_needs(name: str, term: Term, given: Mapping[str, object], rows: Rows) -> None:
    for need in term.needs:
        if given[need] is None:
            raise UserError(f"objective.{name} needs {NEEDS[need]}")
    if missing := [column for column in term.columns if column not in rows]:
        raise UserError(
            f"objective.{name} keeps numbers of every pair ({', '.join(missing)}) in a SampleTable(objective.columns, "
            "num_samples): pass rows=table.read(ids), and store the new values with table.write(ids, loss.rows)"
        )


def _checked_output(name: str, term: Term, output: Any, B: int) -> TermOutput:
    """Return the result of a term. Raises UserError: it has another form, which may happen in a plug-in."""
    right = isinstance(output, tuple) and len(output) == 2 and isinstance(output[1], Mapping)
    if right:
        value, new = output
        sizes = [tuple(v.shape) if isinstance(v, Tensor) else None for v in (value, *new.values())]
        right = sizes == [(), *[(B,)] * len(term.columns)] and new.keys() == term.columns.keys()
    if not right:
        columns = ", ".join(f"{column!r}: new values [{B}]" for column in term.columns)
        raise UserError(
            f"objective.{name}: the term must return a tensor without dimensions and a dict, (value, {{{columns}}}); "
            f"it returned {tree_map_only(Tensor, lambda t: f'tensor {list(t.shape)}', output)}"
        )
    return value, new


def build_objective(
    table: Mapping[str, type[Term]], terms: Mapping[str, Mapping[str, object]], num_samples: int
) -> Objective:
    """Build the objective from the term classes in `table`.

    Arguments and errors are those of `clipx.objectives.build`.
    """
    if not isinstance(terms, Mapping):
        raise UserError(f"objective={terms!r} must map terms to their parameters, as in {{'clip': {{}}}}")
    if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples < 0:
        raise UserError(f"num_samples={num_samples!r} must be a whole number of pairs")
    if not terms:
        raise UserError(f"objective has no term; {suggest('', table)}")
    built: dict[str, Term] = {}
    weights: dict[str, float] = {}
    for name, settings in terms.items():
        if name not in table:
            own = "a term of your own: plugins=[MODULE]"
            raise UserError(f"objective.{name} is not known; {suggest(name, table)}; {own}")
        term = table[name]
        signature = inspect.signature(term, eval_str=True).parameters
        allowed = {key: p.annotation for key, p in signature.items() if key != "num_samples"} | {"weight": float}
        if not isinstance(settings, Mapping | None):
            raise UserError(f"objective.{name}={settings!r} must map parameters to values, as in {{'weight': 0.5}}")
        parameters: dict[str, Any] = {"weight": 1.0, **(settings or {})}  # `clip:` in YAML is None
        for key, value in parameters.items():
            if key not in allowed:
                raise UserError(f"objective.{name}.{key} is not known; {suggest(key, allowed)}")
            _check_type(f"objective.{name}.{key}", value, allowed[key])
        required = [key for key, p in signature.items() if p.default is p.empty and key != "num_samples"]
        if missing := [key for key in required if key not in parameters]:
            raise UserError(f"objective.{name}.{missing[0]} has no default: set it")
        weights[name] = float(parameters.pop("weight"))
        if "num_samples" in signature:
            parameters["num_samples"] = num_samples
        built[name] = term(**parameters)
        _check_declarations(name, built[name])
    return Objective(built, weights)


def _check_declarations(name: str, term: Term) -> None:
    """Raise UserError if `needs` or `columns` of a term have another form, which may happen in a plug-in."""
    if isinstance(term.needs, str) or not set(term.needs) <= NEEDS.keys():
        raise UserError(f"objective.{name}: needs={term.needs!r} must be a tuple; allowed in it: {', '.join(NEEDS)}")
    if not isinstance(term.columns, Mapping):
        raise UserError(f"objective.{name}: columns={term.columns!r} must be a dict {{COLUMN: initial value}}")


def _check_type(key: str, value: object, annotation: Any) -> None:
    """Raise UserError if a value does not have the annotated type, or is not finite.

    A whole number counts as a number. Nothing else is converted: `average="off"` must not be read as true. Parameters
    of other types, such as lists, are checked by their term.
    """
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    if not all(kind in WORDS for kind in kinds):
        return
    unwanted_bool = isinstance(value, bool) and bool not in kinds  # bool is a subclass of int
    if unwanted_bool or not isinstance(value, (*kinds, int) if float in kinds else kinds):
        raise UserError(f"{key}={value!r} must be {' or '.join(WORDS[kind] for kind in kinds)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{key}={value} is out of range; allowed: finite numbers")
