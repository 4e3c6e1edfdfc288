"""Retrieval of captions by image and of images by caption; all captions of an image are right answers."""

from dataclasses import replace
from math import comb
from typing import Any

import torch
from torch import Tensor

from evaluation.datasets.kinds import Captioned
from evaluation.metrics import Ranks, hits, retrieval_ranks, similarity
from evaluation.tasks.rows import CENTRED, CaptionTask, centred_note, row, sides
from evaluation.types import PAPER_NOTE, Device, Features, Items, Result, Score

KS = (1, 5, 10)
EXAMPLES = 8  # queries in each direction that the report shows
SHOWN = 5  # answers that the report shows per query
POOL_SEED = 0  # seed for the choice of a pool's images


class Retrieval(CaptionTask):
    """Retrieval of captions by image and of images by caption; all captions of an image are right answers.

    R@1, R@5, R@10 in both directions; intervals over images, as the captions of one image are not independent.

    `protocol=paper` reproduces the evaluator behind paper 1's tables. From image to text, that evaluator scores one
    caption per image and counts all others as hits: with five captions per image, random embeddings score 80%. Compare
    the published numbers only with rows of this protocol. (value - 0.8) / 0.2 converts a published value to the recall
    of the scored captions.
    """

    name = "retrieval"
    kind = "captioned"
    version = 2

    def groups(self, dataset: Captioned) -> list[dict[str, str]]:
        """Return one group for all images and one per pool.

        The artifact does not depend on pools, nor on the choice between corrected and paper, so its hashes contain
        neither. Under centred there is no artifact.
        """
        protocol = {f"protocol/{dataset.splits[0]}": dataset.protocol}
        return [protocol, *(protocol | {"pool": str(size)} for size in sorted(set(dataset.pools)))]

    def score(self, dataset: Captioned, features: Features, device: Device = "cpu", cosine: bool = True) -> Score:
        """Return rows for all images and for each smaller pool; the artifact's examples give the indices of images."""
        image, text = sides(self, dataset, features, dataset.protocol, cosine)
        image_of_text = dataset.image_of_caption(dataset.splits[0])
        ranks = retrieval_ranks(image, text, image_of_text)
        all_images, *pools = self.groups(dataset)
        rows = self._rows(dataset, ranks, image_of_text, len(image), "", all_images)
        for group in pools:
            size = int(group["pool"])
            images, texts, owner = pool(image_of_text, len(image), size)
            in_pool = retrieval_ranks(image[images], text[texts], owner)
            note = f", {size} of {len(image)} images (seed {POOL_SEED})"
            rows += self._rows(dataset, in_pool, owner, size, note, group)
        items = _items(rows[0], ranks, image_of_text)
        if dataset.protocol == CENTRED:
            return Score(rows, None, items)
        captions = dataset.texts(dataset.splits[0], "captions")
        return Score(rows, {"kind": "retrieval", **_examples(image, text, image_of_text, ranks, captions)}, items)

    def _rows(
        self, dataset: Captioned, ranks: Ranks, owner: Tensor, images: int, note: str, hashes: dict[str, str]
    ) -> list[Result]:
        """Return the rows of one pool of images; `owner` is the image of each text."""
        captions = torch.bincount(owner, minlength=images)
        queries = captions > 0
        counts = captions[queries].double()
        paper = dataset.protocol == "paper"
        split = dataset.splits[0] + note + (PAPER_NOTE if paper else centred_note(dataset.protocol))
        rows = []
        for k in KS:
            image_hits, weights = hits(ranks.image_to_text, k)[queries], torch.ones_like(counts)
            chance = chance_image_to_text(captions[queries], k)
            if paper:
                # the share of hits among each image's captions: one is scored, all others are hits
                image_hits, weights = (counts - 1 + image_hits) / counts, counts
                chance = 1 - (1 - chance) * len(counts) / float(counts.sum())
            metric = f"image_to_text_recall@{k}"
            rows.append(row(self.name, dataset.short, split, metric, image_hits, weights, len(image_hits), chance))
            text_hits = torch.zeros(images, dtype=torch.float64)
            text_hits.index_add_(0, owner, hits(ranks.text_to_image, k))
            share, chance = text_hits[queries] / counts, min(1.0, k / images)
            metric = f"text_to_image_recall@{k}"
            rows.append(row(self.name, dataset.short, split, metric, share, counts, len(owner), chance))
        return [replace(one, hashes=hashes) for one in rows]


def _items(row: Result, ranks: Ranks, owner: Tensor) -> list[Items]:
    """Return the items of both directions over all images; images without a caption are not queries."""
    images = torch.unique(owner)
    of_image, of_text = ranks.image_to_text[images], ranks.text_to_image
    return [
        Items(row.split, "image_to_text_recall@1", images, of_image == 1, of_image, hashes=row.hashes),
        Items(row.split, "text_to_image_recall@1", torch.arange(len(owner)), of_text == 1, of_text, owner, row.hashes),
    ]


def pool(image_of_text: Tensor, images: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw `size` of the images with a fixed seed, and take all their texts.

    Returns int64 indices: of the drawn images, of their texts, and of each text's image among the drawn images.
    """
    chosen = torch.randperm(images, generator=torch.Generator().manual_seed(POOL_SEED))[:size].sort().values
    index_in_pool = torch.full((images,), -1)
    index_in_pool[chosen] = torch.arange(size)
    texts = (index_in_pool[image_of_text] >= 0).nonzero()[:, 0]
    return chosen, texts, index_in_pool[image_of_text[texts]]


def chance_image_to_text(captions: Tensor, k: int) -> float:
    """Return the expected recall at k if the texts are in random order; `captions` int64 [N], number per image.

    For an image with c of all T captions, the top k has none of them with probability C(T - c, k) / C(T, k).
    """
    total = int(captions.sum())
    drawn = min(k, total)
    missed = [comb(total - count, drawn) / comb(total, drawn) for count in captions.tolist()]
    return 1 - sum(missed) / len(missed)


def _drawn(queries: Tensor) -> list[int]:
    """Return EXAMPLES of the queries, drawn with a fixed seed: examples chosen by hand would be biased."""
    order = torch.randperm(len(queries), generator=torch.Generator().manual_seed(0))
    chosen: list[int] = queries[order[:EXAMPLES]].sort().values.tolist()
    return chosen


def _nearest(query: Tensor, answers: Tensor) -> list[tuple[int, float]]:
    """Return index and similarity of the SHOWN answers (of [n, E]) that are nearest to the query [1, E]."""
    top = similarity(query, answers)[0].topk(min(SHOWN, len(answers)))
    return list(zip(top.indices.tolist(), top.values.tolist(), strict=True))


def _examples(image: Tensor, text: Tensor, image_of_text: Tensor, ranks: Ranks, texts: list[str]) -> dict[str, Any]:
    by_text, by_image = [], []
    for query in _drawn(torch.arange(len(text))):
        own, found = int(image_of_text[query]), _nearest(text[query : query + 1], image)
        images = [{"image": i, "similarity": s, "correct": i == own} for i, s in found]
        by_text.append({"caption": texts[query], "images": images, "rank": int(ranks.text_to_image[query])})
    for query in _drawn(torch.unique(image_of_text)):
        found = _nearest(image[query : query + 1], text)
        captions = [{"text": texts[t], "similarity": s, "correct": int(image_of_text[t]) == query} for t, s in found]
        by_image.append({"image": query, "captions": captions, "rank": int(ranks.image_to_text[query])})
    return {"text_to_image": by_text, "image_to_text": by_image}
