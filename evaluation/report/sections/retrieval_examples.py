"""Section "Retrieval examples": queries with their best answers."""

import re
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
    """Return examples of the first seed of each group that has any; all but the first block are folded."""
    blocks: list[Block] = []
    for group in groups:
        run = next((run for run in group.runs if artifacts(run, "retrieval")), None)
        for dataset, artifact in artifacts(run, "retrieval") if run else []:
            from_captions = [_from_caption(example) for example in artifact["text_to_image"]]
            from_images = [_from_image(example) for example in artifact["image_to_text"]]
            both: list[Block] = [
                RetrievalExamples("Caption → images", from_captions),
                RetrievalExamples("Image → captions", from_images),
            ]
            title = f"{dataset} · {group.label}, seed {run.seed if run else 0}"
            blocks.append(Details(title, both, open=not blocks))
    return [Text(LEGEND, "muted"), *blocks] if blocks else []


def _from_caption(example: dict[str, Any]) -> RetrievalExample:
    answers = [
        RetrievalItem(image=_embedded(a["src"]), similarity=float(a["similarity"]), correct=bool(a["correct"]))
        for a in example["images"]
    ]
    return RetrievalExample(RetrievalItem(printable_line(example["caption"])), answers, int(example["rank"]))


def _from_image(example: dict[str, Any]) -> RetrievalExample:
    answers = [
        RetrievalItem(printable_line(a["text"]), similarity=float(a["similarity"]), correct=bool(a["correct"]))
        for a in example["captions"]
    ]
    return RetrievalExample(RetrievalItem(image=_embedded(example["src"])), answers, int(example["rank"]))


def _embedded(src: str) -> str:
    """Return the image's data URI, or "" for a link: the page must not load anything from elsewhere."""
    return src if re.fullmatch(r"data:image/(jpeg|png|webp);base64,[A-Za-z0-9+/=]+", src) else ""
