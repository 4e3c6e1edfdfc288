"""swaps:FOLDER: captions of photographs, each beside the same caption with one change.

Categories: `numbers` (two to twenty) and `colours`, where the word is replaced, and `words`, where two words of the
first caption of an image change places. The changes are drawn with a fixed seed.

Numbers and colours are balanced: captions with different words are matched, and each gets the word of the other. So a
preference for a word, without a look at the image, is right for exactly half of the captions. Captions that find no
partner are left out: their words are too frequent. A text tower may recognise exchanged words without the image.
"""

import random
from collections import defaultdict
from pathlib import Path

from clipx.data.preprocess.captions import Keywords
from clipx.errors import UserError
from evaluation.datasets.files import SomeImages
from evaluation.datasets.kinds import Choices
from evaluation.datasets.shards import open_captions
from evaluation.types import DEFAULTS, Settings

REPLACED = ("numbers", "colours")
SEED = 0


def open_swaps(spec: str, folder: Path, settings: Settings) -> Choices:
    """Open the captions of `captions:FOLDER` as right captions with one wrong caption each.

    Raises UserError: as open_captions, or no caption has a number, a colour or two different words.
    """
    captioned = open_captions(f"captions:{folder}", folder, DEFAULTS)
    split = captioned.splits[0]
    captions, image_of = captioned.texts(split, "captions"), captioned.image_of_caption(split).tolist()
    chosen, texts, categories = list[int](), list[str](), list[str]()
    for category, changed in changes(captions, image_of).items():
        for number, wrong in sorted(changed.items()):
            chosen.append(image_of[number])
            texts += [captions[number], wrong]
            categories.append(category)
    if not chosen:
        raise UserError(f"{folder}: no caption has a number, a colour or two different words")
    images = SomeImages(captioned.images(split), chosen)
    name, slash, of_split = captioned.short.partition("/")
    return Choices(spec, f"{name}_swaps{slash}{of_split}", split, images, texts, categories, settings.limit)


def changes(captions: list[str], image_of: list[int]) -> dict[str, dict[int, str]]:
    """Return category -> number of the caption -> the caption with one change.

    `image_of`: the image of each caption, ascending; for `words`, only the first caption of each image is taken.
    """
    generator = random.Random(SEED)
    changed = {category: _replaced(captions, Keywords([category], digits=False), generator) for category in REPLACED}
    first = {image: number for number, image in reversed([*enumerate(image_of)])}
    exchanged = {number: _exchanged(captions[number], generator) for number in sorted(first.values())}
    return changed | {"words": {number: wrong for number, wrong in exchanged.items() if wrong}}


def _replaced(captions: list[str], keywords: Keywords, generator: random.Random) -> dict[int, str]:
    """Match captions with different keywords, those of the most frequent keywords first, and exchange the keywords."""
    by_label: dict[int, list[int]] = defaultdict(list)
    for number in generator.sample(range(len(captions)), len(captions)):
        if label := keywords(captions[number]):
            by_label[label].append(number)
    wrong: dict[int, str] = {}
    while True:
        first, second = sorted(range(1, len(keywords.words) + 1), key=lambda label: -len(by_label[label]))[:2]
        if not by_label[second]:
            return wrong
        one, other = by_label[first].pop(), by_label[second].pop()
        wrong[one] = keywords.replace(captions[one], second)
        wrong[other] = keywords.replace(captions[other], first)


def _exchanged(caption: str, generator: random.Random) -> str | None:
    """Return the caption with two different words exchanged; None if it has none."""
    words = caption.split()
    places = [(i, j) for i in range(len(words)) for j in range(i) if words[i].casefold() != words[j].casefold()]
    if not places:
        return None
    i, j = generator.choice(places)
    words[i], words[j] = words[j], words[i]
    return " ".join(words)
