"""The report's title, summary and order of sections: overview first, provenance last."""

from evaluation.claims.assess import outcomes
from evaluation.claims.evidence import Evidence
from evaluation.claims.published import TABLES
from evaluation.claims.table import CLAIMS
from evaluation.report.blocks import Document, Section, Text
from evaluation.report.sections.claims import claims, claims_summary
from evaluation.report.sections.forgetting import forgetting
from evaluation.report.sections.paper_figures import paper_figures, toy_problems
from evaluation.report.sections.paper_tables import paper_tables
from evaluation.report.sections.point_weights import point_weights
from evaluation.report.sections.popularity import popularity
from evaluation.report.sections.published import Published
from evaluation.report.sections.results import all_results, headline_metrics, results, tone
from evaluation.report.sections.settings import conditions, provenance, settings
from evaluation.report.sections.task_details import retrieval_examples, task_details
from evaluation.report.sections.training import training
from evaluation.runs.groups import MetricSummary, RunGroup, group_runs, summarise_metrics
from evaluation.runs.reader import Run, limited_note

MAX_DETAILED = 12  # methods with confusion matrices, retrieval examples, ...: the page must stay below 15 MB
MAX_NAMES = 3  # methods or recipes named in the title; with more methods, a report that tests claims starts with them
FOOTER = (
    "Scores are fractions. ▲ or ▼: the whole 95% interval lies above or below chance. With three or more seeds this "
    "must hold for two intervals: Student's t over the seeds, and the mean of the seeds' bootstrap intervals. Click a "
    "column header to sort."
)


def build_report(runs: list[Run], evidence: Evidence, published: Published) -> Document:
    """Return the report on `runs` (at least one): results beside published models, and the claims."""
    failed = [str(run.path) for run in runs if run.failed_to_start]
    runs = [run for run in runs if not run.failed_to_start] or runs
    groups = group_runs(runs)
    metrics = summarise_metrics(groups)
    headline = headline_metrics(metrics)
    claim_outcomes = outcomes(CLAIMS, evidence)
    tested = [outcome.claim for outcome in claim_outcomes if outcome.verdict != "not run"]
    has_paper_runs = any(claim.paper for claim in tested) or any(table.recipe in evidence.runs for table in TABLES)
    claims_section = Section("Claims", claims(evidence, claim_outcomes))
    results_section = Section("Results", results(headline, groups, published))
    forgetting_section = Section("Gain and forgetting", forgetting(groups))
    settings_section = Section("Settings", settings(groups))
    papers = [
        Section("Toy problems", toy_problems(evidence, claim_outcomes)),
        Section("Paper tables", paper_tables(evidence) if has_paper_runs else []),
        Section("Training conditions", conditions(runs)),
        Section("Paper figures", paper_figures(groups, evidence, list_missing=has_paper_runs)),
    ]
    if tested and len(groups) > MAX_NAMES:
        overview = [claims_section, forgetting_section, settings_section, results_section, *papers]
    else:
        overview = [results_section, forgetting_section, claims_section, *papers, settings_section]
    shown = groups[:MAX_DETAILED]
    task_section = Section("Task details", task_details(shown, metrics))
    examples_section = Section("Retrieval examples", retrieval_examples(shown))
    if len(groups) > MAX_DETAILED:
        note = f"Shown: the first {MAX_DETAILED} of {len(groups)} methods. For others, give clipx report their folders."
        for section in (task_section, examples_section):
            section.blocks[:0] = [Text(note, "muted")] if section.blocks else []
    sections = [
        *overview,
        Section("Training", training(groups, headline)),
        task_section,
        Section("Learned popularity", popularity(groups)),
        Section("Point weights", point_weights(groups)),
        examples_section,
        Section("All results", all_results(runs, published)),
        Section("Provenance", provenance(runs, groups)),
    ]
    lead = _summary(headline, runs, len(groups)) + claims_summary(claim_outcomes)
    if failed and not runs[0].failed_to_start:
        lead += f" Left out, because they have no training step: {', '.join(failed)}."
    return Document(title(groups), lead, [section for section in sections if section.blocks], FOOTER)


def title(groups: list[RunGroup]) -> str:
    """Return the names of the methods, or else of the recipes, if there are at most MAX_NAMES; otherwise counts."""
    if len(groups) <= MAX_NAMES:
        return ", ".join(group.label for group in groups)
    recipes = list(dict.fromkeys(group.runs[0].config.recipe or group.label for group in groups))
    if len(recipes) <= MAX_NAMES:
        return ", ".join(recipes)
    return f"{sum(len(group.runs) for group in groups)} runs: {len(groups)} arms of {len(recipes)} recipes"


def _summary(headline: list[MetricSummary], runs: list[Run], methods: int) -> str:
    count = f"{len(runs)} run{'s' if len(runs) > 1 else ''}" + (f" of {methods} methods" if methods > 1 else "")
    if not headline:
        state = "diverged" if all(run.diverged for run in runs) else "not evaluated yet"
        return limited_note(runs) or f"{count}, {state}."
    tones = [tone(metric) for metric in headline if metric.row.chance is not None]
    if not tones:  # geometry has no chance level
        return f"{count}."
    worse = f", worse: {tones.count('bad')}" if "bad" in tones else ""
    better = f"better than chance: {tones.count('good')} of {len(tones)}"
    return f"{count}. Headline metrics whose whole 95% interval is {better}{worse}."
