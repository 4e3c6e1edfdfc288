"""Sets that test whether a model reads how words are put together: SugarCrepe and Winoground."""

import json
from pathlib import Path

from clipx.errors import UserError
from evaluation.datasets.folder import require_file
from evaluation.datasets.images import FileImages
from evaluation.datasets.kinds import Choices, MinimalPairs
from evaluation.datasets.layouts.files import read_json
from evaluation.types import Settings

KINDS = ("add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj")
OF_SUGAR_CREPE = ("filename", "caption", "negative_caption")
OF_WINOGROUND = ("image_0", "image_1", "caption_0", "caption_1", "collapsed_tag")


def open_sugar_crepe(spec: str, folder: Path, settings: Settings) -> Choices:
    """Open SugarCrepe (Hsieh et al. 2023): KIND.json of all seven kinds, and COCO's val2017/.

    Raises UserError: a file is missing or corrupt, or an entry lacks a field or an image.
    """
    paths, captions, categories = list[Path](), list[list[str]](), list[str]()
    for kind in KINDS:
        file = folder / f"{kind}.json"
        for key, entry in read_json(spec, file, "SugarCrepe's captions").items():
            filename, right, wrong = _fields(spec, f"{file}: entry {key}", entry, OF_SUGAR_CREPE)
            paths.append(folder / "val2017" / filename)
            captions.append([right, wrong])
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
            raise UserError(f"datasets={spec}: {file}: line {number} is no JSON") from None
        first, second, *both, tag = _fields(spec, f"{file}: line {number}", entry, OF_WINOGROUND)
        paths += [folder / "data" / "images" / f"{name}.png" for name in (first, second)]
        captions += both
        categories.append(tag)
    if not paths:
        raise UserError(f"datasets={spec}: {file} has no examples")
    images = FileImages(spec, folder, paths)
    return MinimalPairs(spec, "winoground", "test", images, captions, categories, settings.limit, both_ways=True)


def _fields(spec: str, place: str, entry: object, names: tuple[str, ...]) -> list[str]:
    """Return the texts of these fields."""
    values = [entry.get(name) if isinstance(entry, dict) else None for name in names]
    for name, value in zip(names, values, strict=True):
        if not (isinstance(value, str) and value.strip()):
            raise UserError(f'datasets={spec}: {place} has no "{name}"')
    return [str(value) for value in values]
