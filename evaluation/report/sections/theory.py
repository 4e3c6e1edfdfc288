"""The papers' toy problems in the report: what `clipx theory` drew, beside what it found."""

from pathlib import Path

from evaluation.claims.evidence import Evidence
from evaluation.claims.types import Outcome
from evaluation.report.blocks import Block, Details, Picture, Pictures, Text
from evaluation.report.sections.artifacts import slug


def blocks(evidence: Evidence, found: list[Outcome]) -> list[Block]:
    """A folded block a problem, all of its drawings in it; which claims it decides stands above them."""
    of_problem: dict[str, list[Path]] = {}
    for file in evidence.drawn:
        of_problem.setdefault(file.parent.name, []).append(file)
    inner: list[Block] = [_problem(name, files, found) for name, files in of_problem.items()]
    return [Text("Solved exactly, without data and towers: clipx theory.", "muted"), *inner] if inner else []


def _problem(name: str, files: list[Path], found: list[Outcome]) -> Details:
    about = [outcome for outcome in found if outcome.claim.program == f"clipx theory {name}"]
    said: list[Block] = [Text(f"{o.claim.id} {o.verdict}: {o.claim.statement}") for o in about]
    drawn = [Picture(f"theory-{slug(name)}-{slug(file.stem)}", file.read_bytes(), file.stem) for file in files]
    title = f"{name}: {', '.join(f'{o.claim.id} {o.verdict}' for o in about)}" if about else name
    return Details(title, [*said, Pictures(drawn)])
