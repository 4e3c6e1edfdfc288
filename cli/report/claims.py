"""`clipx report claims`: the verdicts on the papers' claims; `clipx report power`: what undecided ones need."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from cli.settings.arguments import NoOptions, parse_arguments
from clipx.config.setting import AT_LEAST_1, setting
from clipx.errors import UserError
from clipx.utils.terminal import duration, empty_table, stdout_console
from clipx.verdict import DECIDED, REFUTED
from evaluation.claims.assess import describe_looks, looks_of, outcomes
from evaluation.claims.evidence import Evidence, Seeds, collect_evidence
from evaluation.claims.table import CLAIMS
from evaluation.claims.types import ANY, Finding, Outcome
from evaluation.claims.verdict import look_reached, open_parts, stuck_parts, survives_holm
from evaluation.runs import reader
from evaluation.runs.description import four_decimals, training_seconds

COLOURS = dict.fromkeys(REFUTED, "red") | dict.fromkeys(("undecided", "depends"), "yellow")
COLOURS |= {"holds": "green", "not run": "dim"}
INDENT = (0, 0, 0, 5)  # of a line below a claim
LEGEND = (
    "A larger effect supports the claim; s is the smallest effect of interest. All looks of a claim together give a "
    "false verdict with at most 2.5% probability in each direction; each interval has its look's part of these."
)
CAPTION = (
    "needed: seeds that decide with 80% power at this effect and spread. look: the first look with at least "
    "that many seeds. time: of the missing runs up to that look, or up to the last look if there is none. "
    "-: unknown, or not defined (before the first look, and for claims that are not about means)."
)
Arm = tuple[str, str]  # recipe, arm
Runs = Mapping[str, Mapping[str, Seeds]]  # recipe -> arm -> seed -> run


def claims(arguments: list[str]) -> None:
    """Run `clipx report claims RUN_OR_DIR...`."""
    given, _ = parse_arguments(arguments, NoOptions, "report claims", "RUN_OR_DIR...")
    print_verdicts([Path(path) for path in given], [claim.id for claim in CLAIMS])


def print_verdicts(paths: list[Path], ids: list[str]) -> None:
    """Print the verdicts on the claims with these ids, and the commands that test the claims without a verdict.

    Raises UserError: a folder is missing, or none of them has a run or a claims.json.
    """
    evidence = collect_evidence(reader.find(paths, needed=False), paths)
    if not evidence.runs and not evidence.stated:
        below = f"at or below {', '.join(map(str, paths))}"
        raise UserError(f"no run that tests a claim, and no claims.json, {below}; clipx ls claims lists the recipes")
    found = outcomes(tuple(claim for claim in CLAIMS if claim.id in ids), evidence)
    console = stdout_console()
    surviving = survives_holm(found)
    tested = [outcome for outcome in found if outcome.verdict != "not run"]
    for outcome in tested:
        _print(console, outcome, surviving.get(f"{outcome.claim.id} {outcome.recipe}"))
    console.print(LEGEND, style="dim")
    for line in [*describe_looks(tested, evidence), *evidence.left_out, *_commands(found)]:
        print(line)


def _commands(found: list[Outcome]) -> list[str]:
    """Return a line `IDS: COMMAND` for each command that tests claims without a verdict."""
    claims_of: dict[str, list[str]] = {}
    for outcome in found:
        if outcome.verdict == "not run":
            command = outcome.claim.program or f"clipx reproduce recipe={outcome.recipe}"
            claims_of.setdefault(command, []).append(outcome.claim.id)
    return [f"{', '.join(ids)}: {command}" for command, ids in claims_of.items()]


def _print(console: Console, outcome: Outcome, survives: bool | None) -> None:
    """Print the verdict and the statement of a claim, and each finding; rich wraps lines at the terminal's width."""
    title = Text.assemble((f"{outcome.claim.id} {outcome.words}", COLOURS[outcome.verdict]))
    title.append("" if survives in (True, None) else " (not after Holm's correction for all claims)", "yellow")
    console.print(title.append(f"  {outcome.claim.statement}" + (f" ({outcome.recipe})" if outcome.recipe else "")))
    checks = (f"checked by {check.text}" for check in outcome.checked_by)
    for note in filter(None, (outcome.note, *checks)):
        console.print(Padding(Text(note, "yellow"), INDENT, expand=False))
    for finding in outcome.findings:
        words = [finding.label, *_numbers(finding)]
        if len(outcome.findings) > 1:
            words.append(finding.verdict)
        again = finding.replication and f"replication {finding.replication}"
        console.print(Padding(Text("; ".join(filter(None, [*words, finding.note, again]))), INDENT, expand=False))


def _numbers(finding: Finding) -> list[str]:
    """Return the effect as `0.1000 [0.0900, 0.1100], s = 0.005`, the seeds, and the seeds needed; "" if unknown."""
    effect, estimate = "", finding.estimate
    if estimate is not None:
        effect, *ends = map(four_decimals, (estimate.effect, estimate.low, estimate.high))
        effect += f" [{', '.join(ends)}]" if math.isfinite(estimate.low) else ""
        effect += f", s = {finding.least:g}" if finding.least is not None else ""
    needed = finding.needed and f"needs {finding.needed} seeds (80% power)"
    return [effect, f"{finding.seeds} seeds" if finding.seeds else "", needed]


@dataclass(frozen=True)
class Need:
    """The seeds that an undecided part of a claim needs."""

    outcome: Outcome
    finding: Finding
    # the look to wait for: the first look if it is not reached, else the first look with at least `seeds_needed` seeds;
    # None: there is none, or the power is unknown
    look: int | None
    last: int  # the last look
    seeds: dict[Arm, int]  # of each arm of this part that has runs: the number at `look`, or at the last look


@dataclass(kw_only=True)
class PowerOptions:
    """The options of `clipx report power`."""

    jobs: int = setting(1, "runs at the same time", AT_LEAST_1)


def power(arguments: list[str]) -> None:
    """Run `clipx report power RUN_OR_DIR... [jobs=N]`.

    Raises UserError: no runs, no run that tests a claim, or an invalid argument.
    """
    runs, options = parse_arguments(arguments, PowerOptions, "report power", "RUN_OR_DIR...")
    jobs, paths = options.jobs, [Path(run) for run in runs]
    evidence = collect_evidence(reader.find(paths), paths)
    found = [o for o in outcomes(CLAIMS, evidence) if not o.claim.program and o.verdict != "not run"]
    if not found:
        raise UserError(
            f"no run at or below {', '.join(runs)} tests a claim; clipx ls claims lists the recipes that do"
        )
    _print_needs(found, evidence, jobs)
    for line in evidence.left_out:
        print(line)


def _print_needs(found: list[Outcome], evidence: Evidence, jobs: int) -> None:
    """Print a row for each undecided part of a claim, then the decided claims, then the time of all needed runs."""
    rows = _needs(found, evidence)
    console = stdout_console()
    if rows:
        columns = ("claim", "part", "effect", "s", "spread", "seeds", "needed", "look", "time")
        table = empty_table(columns, ("claim", "part"), caption=CAPTION)
        for need in rows:
            table.add_row(*_cells(need, run_time(missing(need.seeds, evidence.runs), evidence.runs, jobs)))
        console.print(table)
    if decided := [f"{o.claim.id} {o.recipe} ({o.verdict})" for o in found if o.verdict in DECIDED]:
        print(f"decided: {', '.join(decided)}")
    for outcome in found:
        for finding, reason in stuck_parts(outcome):
            print(f"{reason} ({outcome.claim.id} {outcome.recipe}: {finding.label})")
    seeds: dict[Arm, int] = {}
    for need in rows:
        seeds |= {arm: max(target, seeds.get(arm, 0)) for arm, target in need.seeds.items()}
    left = missing(seeds, evidence.runs)
    if runs := sum(left.values()):
        took = run_time(left, evidence.runs, jobs)
        print(f"all together: {runs} runs" + (f", about {duration(took)} with jobs={jobs}" if took else ""))


def _needs(found: list[Outcome], evidence: Evidence) -> list[Need]:
    """Return the needs of all undecided parts of claims."""
    rows = []
    for outcome in found:
        looks = list(looks_of(outcome.claim, outcome.recipe, evidence))
        for part, finding in open_parts(outcome):
            arms = [(outcome.recipe, arm) for arm in evidence.runs[outcome.recipe] if {arm, ANY} & set(part.arms)]
            look = look_reached(finding, looks)
            rows.append(Need(outcome, finding, look, looks[-1], dict.fromkeys(arms, look or looks[-1])))
    return rows


def missing(seeds: dict[Arm, int], runs: Runs) -> dict[Arm, int]:
    """Return how many of the first `seeds` seeds of each arm have no run."""
    return {
        (recipe, arm): target - sum(seed < target for seed in runs.get(recipe, {}).get(arm, {}))
        for (recipe, arm), target in seeds.items()
    }


def run_time(left: Mapping[Arm, int], runs: Runs, jobs: int) -> float | None:
    """Return the wall-clock seconds of `left` runs of each arm; None if a recipe has no run with a known time."""
    total = 0.0
    for (recipe, arm), number in left.items():
        if number:
            took = mean_seconds(runs.get(recipe, {}), arm)
            if took is None:
                return None
            total += number * took / jobs
    return total


def mean_seconds(arms: Mapping[str, Seeds], arm: str) -> float | None:
    """Return the mean seconds of training and evaluation of an arm's runs, or of all runs if this arm has no time."""
    for chosen in (arms.get(arm, {}), {(name, s): run for name, of in arms.items() for s, run in of.items()}):
        known = [took + run.evaluation_seconds for run in chosen.values() if (took := training_seconds(run))]
        if known:
            return fmean(known)
    return None


def _cells(need: Need, took: float | None) -> list[Text]:
    finding, estimate = need.finding, need.finding.estimate
    later = f"> {need.last}" if finding.needed else "-"
    cells = [
        f"{need.outcome.claim.id} {need.outcome.recipe}",
        finding.label,
        "-" if estimate is None else four_decimals(estimate.effect),
        "-" if finding.least is None else f"{finding.least:g}",
        "-" if estimate is None or estimate.spread is None else four_decimals(estimate.spread),
        str(finding.seeds),
        finding.needed or "-",
        str(need.look) if need.look else later,
        duration(took),
    ]
    return [Text(cell) for cell in cells]
