"""ARO (Yuksekgonul et al. 2023): do models know relations, attributes and the order of words?"""

from collections import Counter
from dataclasses import replace
from pathlib import Path

from clipx.data.sources.hf import HFPairs
from clipx.errors import UserError
from evaluation.datasets.images import Box, FileImages
from evaluation.datasets.kinds import Choices
from evaluation.datasets.layouts.files import read_json, text_fields
from evaluation.datasets.layouts.training import SourceImages, source_config
from evaluation.types import Settings

FIELDS = ("image_path", "true_caption", "false_caption")
BOX = ("bbox_x", "bbox_y", "bbox_w", "bbox_h")
MIN_IMAGES = 25  # pairs of attributes with fewer images are left out of the mean (authors' dataset_zoo/aro_datasets.py)
ORDER = ("correct_caption", *(f"hard_text_{k}" for k in range(1, 5)))
# Relations that the authors leave out of the mean: the list `symmetric` in their notebook "Replicate ARO!"
LEFT_OUT = """
    adjusting, around, attached to, beside, between, bigger than, biting, boarding, brushing, by, chewing, cleaning,
    climbing, close to, coming from, coming out of, contain, crossing, dragging, draped over, drinking, drinking
    from, driving, driving down, driving on, eating from, eating in, enclosing, exiting, facing, filled with,
    floating in, floating on, flying, flying above, flying in, flying over, flying through, full of, going down,
    going into, going through, grazing in, growing in, growing on, guiding, hanging from, hanging in, hanging off,
    hanging over, higher than, holding onto, hugging, in between, jumping off, jumping on, jumping over, kept in,
    larger than, leading, leaning over, leaving, licking, longer than, looking in, looking into, looking out,
    looking over, looking through, lying next to, lying on top of, making, mixed with, mounted on, moving, near,
    next to, of, on the back of, on the edge of, on the front of, on the other side of, on the side of, opening,
    painted on, parked at, parked beside, parked by, parked in, parked in front of, parked near, parked next to,
    perched on, petting, piled on, playing, playing in, playing on, playing with, pouring, reaching for, reading,
    reflected on, riding on, running in, running on, running through, seen through, sitting behind, sitting beside,
    sitting by, sitting in front of, sitting near, sitting next to, sitting under, skiing down, skiing on, sleeping
    in, sleeping on, smiling at, sniffing, splashing, sprinkled on, stacked on, standing against, standing around,
    standing behind, standing beside, standing in front of, standing near, standing next to, staring at, stuck in,
    surrounding, swimming in, swinging, talking to, topped with, touching, traveling down, traveling on, tying,
    typing on, underneath, wading in, waiting for, walking across, walking by, walking down, walking next to,
    walking through, with, working in, working on, worn on, wrapped around, wrapped in
"""


def open_order(spec: str, folder: Path, settings: Settings) -> Choices:
    """Open COCO-Order or Flickr30k-Order: each image has its caption and four with words exchanged.

    The authors exchange words at random in each run. The captions here are the fixed ones of the benchmark MIEB (Xiao
    et al. 2025); `folder` is its Hugging Face data set, with the split `test`.

    Raises UserError: the data set cannot be loaded, or a column or a caption is missing.
    """
    columns = replace(settings, image_column="images", caption_column=ORDER[0])
    pairs = HFPairs(source_config(columns, source="hf", root=str(folder), split="test"), folder)
    for column in ORDER:
        if column not in pairs.rows.column_names:
            raise UserError(f"datasets={spec}: {folder} has no column {column!r}")
    captions = [text or "" for row in zip(*(pairs.rows[column] for column in ORDER), strict=True) for text in row]
    if not all(captions):
        raise UserError(f"datasets={spec}: row {captions.index('') // len(ORDER)} of {folder} lacks a caption")
    images = SourceImages(spec, pairs, [*range(len(pairs))])
    return Choices(spec, "", "test", images, captions, ["order"] * len(pairs), settings.limit, averaged=frozenset())


def open_visual_genome(spec: str, path: Path, settings: Settings, relations: bool) -> Choices:
    """Open VG-Relation or VG-Attribution: a JSON file with images/ next to it.

    Raises UserError: the file is missing or corrupt, or an entry lacks a field or an image.
    """
    listed = read_json(spec, path, "ARO's captions", list)
    paths, boxes, captions, categories = list[Path](), list[Box](), list[str](), list[str]()
    for number, entry in enumerate(listed):
        where = f"{path}: entry {number}"
        image, right, wrong = text_fields(spec, where, entry, FIELDS)
        box = [entry.get(name) for name in BOX]
        if not all(type(side) in (int, float) for side in box):
            raise UserError(f"datasets={spec}: {where} has no box ({', '.join(BOX)})")
        x, y, width, height = box
        paths.append(path.parent / "images" / image)
        boxes.append((x, y, x + width, y + height))
        captions += [right, wrong]
        categories.append(_category(spec, where, entry, relations))
    count, left_out = Counter(categories), " ".join(LEFT_OUT.split()).split(", ")
    minimum = 1 if relations else MIN_IMAGES
    averaged = frozenset(name for name, n in count.items() if n >= minimum and name not in left_out)
    images = FileImages(spec, path.parent, paths, boxes)
    return Choices(spec, path.stem, "test", images, captions, categories, settings.limit, averaged=averaged)


def _category(spec: str, where: str, entry: dict[str, object], relations: bool) -> str:
    if relations:
        return text_fields(spec, where, entry, ("relation_name",))[0]
    attributes = entry.get("attributes")
    if not (isinstance(attributes, list) and len(attributes) == 2):
        raise UserError(f'datasets={spec}: {where} needs a list "attributes" of two')
    return f"{attributes[0]}_{attributes[1]}"
