"""Section "Retrieval examples": queries with their best answers."""

import re
from dataclasses import replace
from typing import Any

from evaluation.report.blocks import Block, Details, RetrievalExample, RetrievalExamples, RetrievalItem, Text
from evaluation.report.sections.task_details import artifacts
from evaluation.runs.groups import RunGroup
from evaluation.types import printable_line

LEGEND = (
    "Best answer first, each with its similarity (cosine, unless the embeddings are not normalised). "
    "Correct answers are framed and ticked."
)


def retrieval_examples(groups: list[RunGroup]) -> list[Block]:
    """Return examples from each group's first seed that has some; all but the first block are folded."""
    blocks: list[Block] = []
    for group in groups:
        run = next((run for run in group.runs if artifacts(run, "retrieval")), None)
        for dataset, artifact in artifacts(run, "retrieval") if run else []:
            from_captions = [_example(example, example["images"]) for example in artifact["text_to_image"]]
            from_images = [_example(example, example["captions"]) for example in artifact["image_to_text"]]
            both: list[Block] = [
                RetrievalExamples("Caption → images", from_captions),
                RetrievalExamples("Image → captions", from_images),
            ]
            title = f"{dataset} · {group.label}, seed {run.seed if run else 0}"
            blocks.append(Details(title, both, open=not blocks))
    return [Text(LEGEND, "muted"), *blocks] if blocks else []


def _example(query: dict[str, Any], answers: list[dict[str, Any]]) -> RetrievalExample:
    shown = [replace(_item(a), similarity=float(a["similarity"]), correct=bool(a["correct"])) for a in answers]
    return RetrievalExample(_item(query), shown, int(query["rank"]))


def _item(entry: dict[str, Any]) -> RetrievalItem:
    """Return a caption (key `caption` of a query, `text` of an answer) or an image (key `src`)."""
    if "src" in entry:
        return RetrievalItem(image=_embedded(entry["src"]))
    return RetrievalItem(printable_line(entry["caption"] if "caption" in entry else entry["text"]))


def _embedded(src: str) -> str:
    """Return the image's data URI, or "" for a link: the page must not load external files."""
    return src if re.fullmatch(r"data:image/(jpeg|png|webp);base64,[A-Za-z0-9+/=]+", src) else ""
