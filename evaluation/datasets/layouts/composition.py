"""Sets that test whether a model understands the composition of words: SugarCrepe and Winoground."""

import json
from pathlib import Path

from clipx.errors import UserError
from evaluation.datasets.folder import require_file
from evaluation.datasets.images import FileImages
from evaluation.datasets.kinds import Choices, MinimalPairs
from evaluation.datasets.layouts.files import read_json, text_fields
from evaluation.types import Settings

KINDS = ("add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj")
SUGAR_CREPE_FIELDS = ("filename", "caption", "negative_caption")
WINOGROUND_FIELDS = ("image_0", "image_1", "caption_0", "caption_1", "collapsed_tag")


def open_sugar_crepe(spec: str, folder: Path, settings: Settings) -> Choices:
    """Open SugarCrepe (Hsieh et al. 2023): KIND.json for each of KINDS, and COCO's images in val2017/.

    Raises UserError: a file is missing or corrupt, or an entry lacks a field or an image.
    """
    paths, captions, categories = list[Path](), list[str](), list[str]()
    for kind in KINDS:
        file = folder / f"{kind}.json"
        for key, entry in read_json(spec, file, "SugarCrepe's captions").items():
            filename, right, wrong = text_fields(spec, f"{file}: entry {key}", entry, SUGAR_CREPE_FIELDS)
            paths.append(folder / "val2017" / filename)
            captions += [right, wrong]
            categories.append(kind)
    if not paths:
        raise UserError(f"datasets={spec}: {folder} has no captions")
    images = FileImages(spec, folder, paths)
    return Choices(spec, "sugar_crepe", "test", images, captions, categories, settings.limit)


def open_winoground(spec: str, folder: Path, settings: Settings) -> MinimalPairs:
    """Open Winoground (Thrush et al. 2022): data/examples.jsonl, and data/images.zip unpacked to data/images/.

    Raises UserError: the file is missing or corrupt, or an example lacks a field or an image.
    """
    file = folder / "data" / "examples.jsonl"
    paths, captions, categories = list[Path](), list[str](), list[str]()
    for number, line in enumerate(require_file(spec, file, "Winoground's examples").splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError:
            raise UserError(f"datasets={spec}: {file}: line {number} is not JSON") from None
        first, second, *both_captions, tag = text_fields(spec, f"{file}: line {number}", entry, WINOGROUND_FIELDS)
        paths += [folder / "data" / "images" / f"{name}.png" for name in (first, second)]
        captions += both_captions
        categories.append(tag)
    if not paths:
        raise UserError(f"datasets={spec}: {file} has no examples")
    images = FileImages(spec, folder, paths)
    return MinimalPairs(spec, "winoground", "test", images, captions, categories, settings.limit, both_ways=True)
