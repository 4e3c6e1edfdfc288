"""Layouts of composition sets: choices of a caption, minimal pairs, and images associated with a cue."""

import csv
import io
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from clipx.data.sources.files import read_json, read_text
from clipx.data.sources.hf import HFPairs
from clipx.errors import UserError
from clipx.utils.files import content_hash
from clipx.utils.trust import load_json
from evaluation.datasets import prompts
from evaluation.datasets.captioned import all_captions, json_lines, source_config
from evaluation.datasets.files import AlternatingImages, Box, FileImages, SourceImages, text_fields
from evaluation.datasets.kinds import Associations, Choices, MinimalPairs, draw
from evaluation.types import Settings

CHANGES = ("add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj")
WINOGROUND_FIELDS = ("image_0", "image_1", "caption_0", "caption_1", "collapsed_tag")
MMVP_COLUMNS = ("Question ID", "Type", "Statement")
MMVP_TEMPLATES = prompts.Templates(ensemble=["a photo of {c}"], simple=["{c}"])  # {c}: the statement
WINOGAVIL_COLUMNS = ("candidates", "cue", "associations")
ARO_FIELDS = ("image_path", "true_caption", "false_caption")
ARO_BOX = ("bbox_x", "bbox_y", "bbox_w", "bbox_h")
MIN_IMAGES = 25  # pairs of attributes with fewer images are left out of the mean (authors' dataset_zoo/aro_datasets.py)
RELATIONS = {"a": ("left", "right", "on", "under"), "b": ("left", "right", "in-front", "behind")}  # two pairs each
ORDER = ("correct_caption", *(f"hard_text_{k}" for k in range(1, 5)))
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
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


@dataclass(frozen=True)
class Foils:
    """A set with a JSON file for each category, whose entries have the name of an image, right and wrong captions."""

    what: str  # name of the set in messages
    categories: tuple[str, ...]
    place: str  # file below the set's folder, with {} for the category
    images: str  # folder of the images below the set's folder
    fields: tuple[str, ...]  # image, right captions, wrong captions
    right: int = 1  # number of right captions
    entries: type = dict  # dict or list
    voted: bool = False  # only entries count for which MIN_VOTES annotators chose the caption and not the foil
    averaged: bool = False  # also report the mean over the categories


SUGAR_CREPE = Foils("SugarCrepe", CHANGES, "{}.json", "val2017", ("filename", "caption", "negative_caption"))
SUGAR_CREPE_PP = Foils(
    "SugarCrepe++",
    CHANGES[2:],  # the first two add words
    "data/{}.json",
    "val2017",
    ("filename", "caption", "caption2", "negative_caption"),
    right=2,
    entries=list,
)
PIECES = (
    *("existence", "plurals", "counting-hard", "counting-small-quant", "counting-adversarial", "relations"),
    *("action-replacement", "actant-swap", "coreference-standard", "coreference-hard", "foil-it"),
)
VALSE = Foils("VALSE", PIECES, "data/{}.json", "images", ("image_file", "caption", "foil"), voted=True, averaged=True)
MIN_VOTES = 2  # of three annotators: authors' lxmert_valse_eval.py


def open_foils(spec: str, folder: Path, settings: Settings, layout: Foils) -> Choices:
    """Open SugarCrepe (Hsieh et al. 2023), SugarCrepe++ (Dumpala et al. 2024) or VALSE (Parcalabescu et al. 2022).

    The images of the first two are COCO's. Those of VALSE come from four data sets and lie together in one folder.

    Raises UserError: a file is missing or corrupt, or an entry lacks a field or an image.
    """
    paths, captions, categories = list[Path](), list[str](), list[str]()
    for category in layout.categories:
        file = folder / layout.place.format(category)
        listed = read_json(file, f"{layout.what}'s captions", layout.entries)
        for key, entry in listed.items() if isinstance(listed, dict) else enumerate(listed):
            where = f"{file}: entry {key}"
            image, *texts = text_fields(where, entry, layout.fields)
            if not layout.voted or _votes(where, entry) >= MIN_VOTES:
                paths.append(folder / layout.images / image)
                captions += texts
                categories.append(category)
    if not paths:
        raise UserError(f"{folder} has no captions")
    found = Choices(spec, "", "test", FileImages(folder, paths), captions, categories, settings.limit)
    found.right, found.averaged = layout.right, frozenset(categories if layout.averaged else ())
    return found


def _votes(where: str, entry: dict[str, object]) -> int:
    """Return how many annotators chose the caption, and not the foil, as the description of the image."""
    votes = entry.get("mturk")
    count = votes.get("caption") if isinstance(votes, dict) else None
    if type(count) is not int:
        raise UserError(f'{where} has no number "caption" in "mturk"')
    return count


def open_whatsup(spec: str, path: Path, settings: Settings, relations: tuple[str, ...]) -> Choices:
    """Open What'sUp A or B (Kamath et al. 2023): a JSON file, with its images in a folder next to it.

    An image, as data/controlled_images/mug_left_of_table.jpeg, has the captions of all four RELATIONS between its
    objects, its own first. A set is the four images of the same objects; settings.limit counts sets.

    Raises UserError: the file is missing or corrupt, an entry lacks a field or an image, or a set lacks a relation.
    """
    sets: dict[tuple[str, str], dict[str, tuple[Path, list[str]]]] = {}  # objects -> relation -> image, captions
    for number, entry in enumerate(read_json(path, "What'sUp's captions", list)):
        where = f"{path}: entry {number}"
        (image,) = text_fields(where, entry, ("image_path",))
        options = entry.get("caption_options")
        if not (isinstance(options, list) and len(options) == 4 and all(isinstance(text, str) for text in options)):
            raise UserError(f'{where} needs a list "caption_options" of four texts')
        words = Path(image).stem.split("_")
        of_set = sets.setdefault((words[0], words[-1]), {})
        relation = "".join(words[1:2])
        if relation in of_set:
            raise UserError(f"{where} is a second image of {words[0]} and {words[-1]} with {relation}")
        of_set[relation] = path.parent / image.removeprefix("data/"), options
    for objects, of_set in sets.items():
        if set(of_set) != set(relations):
            shown, needed = (", ".join(sorted(names)) for names in (of_set, relations))
            raise UserError(f"{path}: the images of {' and '.join(objects)} show {shown}; a set has {needed}")
    chosen = [[*sets.values()][i] for i in draw(len(sets), settings.limit)]
    images = FileImages(path.parent, [of_set[relation][0] for of_set in chosen for relation in relations])
    captions = [text for of_set in chosen for relation in relations for text in of_set[relation][1]]
    found = Choices(spec, "", "test", images, captions, [*relations] * len(chosen), None)
    found.groups = ("pair_accuracy", 2), ("set_accuracy", len(relations))
    return found


def open_colorswap(spec: str, folder: Path, settings: Settings) -> MinimalPairs:
    """Open the test split of ColorSwap (Burapacheep et al. 2024), the Hugging Face data set stanfordnlp/colorswap.

    The category is the program that made the images.

    Raises UserError: the data set cannot be loaded, or a column or a caption is missing.
    """
    sides = []
    for k in (1, 2):
        sides.append(_hf_pairs(folder, "test", settings, f"image_{k}", f"caption_{k}", "image_source"))
    images = AlternatingImages([SourceImages(side, [*range(len(side))]) for side in sides])
    captions = [text for pair in zip(*map(all_captions, sides), strict=True) for (text,) in pair]
    programs = [str(program) for program in sides[0].rows["image_source"]]
    found = MinimalPairs(spec, "", "test", images, captions, programs, settings.limit)
    found.both_ways = True
    return found


def open_winoground(spec: str, folder: Path, settings: Settings) -> MinimalPairs:
    """Open Winoground (Thrush et al. 2022): data/examples.jsonl, and data/images.zip unpacked to data/images/.

    Raises UserError: the file is missing or corrupt, or an example lacks a field or an image.
    """
    file = folder / "data" / "examples.jsonl"
    paths, captions, categories = list[Path](), list[str](), list[str]()
    for where, entry in json_lines(file, "Winoground's examples"):
        first, second, *both_captions, tag = text_fields(where, entry, WINOGROUND_FIELDS)
        paths += [folder / "data" / "images" / f"{name}.png" for name in (first, second)]
        captions += both_captions
        categories.append(tag)
    found = MinimalPairs(spec, "winoground", "test", FileImages(folder, paths), captions, categories, settings.limit)
    found.both_ways = True
    return found


def open_order(spec: str, folder: Path, settings: Settings) -> Choices:
    """Open ARO's COCO-Order or Flickr30k-Order: each image has its caption and four with words exchanged.

    The authors exchange words at random in each run. The captions here are the fixed ones of the benchmark MIEB (Xiao
    et al. 2025); `folder` is its Hugging Face data set, with the split `test`.

    Raises UserError: the data set cannot be loaded, or a column or a caption is missing.
    """
    pairs = _hf_pairs(folder, "test", settings, "images", *ORDER)
    captions = [text or "" for row in zip(*(pairs.rows[column] for column in ORDER), strict=True) for text in row]
    if not all(captions):
        raise UserError(f"row {captions.index('') // len(ORDER)} of {folder} lacks a caption")
    images = SourceImages(pairs, [*range(len(pairs))])
    found = Choices(spec, "", "test", images, captions, ["order"] * len(pairs), settings.limit)
    found.by_category = False
    return found


def _hf_pairs(folder: Path, split: str, settings: Settings, image: str, caption: str, *further: str) -> HFPairs:
    """Open a Hugging Face data set; raise UserError if it lacks one of the columns."""
    columns = replace(settings, image_column=image, caption_column=caption)
    pairs = HFPairs(source_config(columns, source="hf", root=str(folder), split=split), folder)
    for column in further:
        if column not in pairs.rows.column_names:
            raise UserError(f"{folder} has no column {column!r}")
    return pairs


def open_countbench(spec: str, folder: Path, settings: Settings) -> Choices:
    """Open CountBench (Paiss et al. 2023): each image has its caption, and the same with the eight other NUMBERS.

    `folder` is the Hugging Face data set nielsr/countbench. Rows without an image (its link was dead), or whose caption
    lacks the word of their number, are left out.

    Raises UserError: the data set cannot be loaded, a column is missing, or no row is left.
    """
    pairs = _hf_pairs(folder, "train", settings, "image", "text", "number")
    kept, captions, words = list[int](), list[str](), list[str]()
    for at, (text, number, image) in enumerate(zip(*(pairs.rows[c] for c in ("text", "number", "image")), strict=True)):
        word = NUMBERS[number - 2] if number in range(2, 11) else ""
        found = re.search(rf"\b{word}\b", text or "", re.IGNORECASE) if word else None
        if found and image and (image["bytes"] or image["path"]):
            kept.append(at)
            words.append(word)
            others = (_with_case(other, found[0]) for other in NUMBERS if other != word)
            captions += [text, *(text[: found.start()] + other + text[found.end() :] for other in others)]
    if not kept:
        raise UserError(f"{folder} has no image with a caption that names its number")
    return Choices(spec, "", "test", SourceImages(pairs, kept), captions, words, settings.limit)


def _with_case(word: str, like: str) -> str:
    """Return `word` in the case of `like`: one, One or ONE. Otherwise its case would tell the right caption."""
    if like.isupper():
        return word.upper()
    return word.capitalize() if like[0].isupper() else word


def open_visual_genome(spec: str, path: Path, settings: Settings, relations: bool) -> Choices:
    """Open ARO's VG-Relation or VG-Attribution (Yuksekgonul et al. 2023): a JSON file with images/ next to it.

    Raises UserError: the file is missing or corrupt, or an entry lacks a field or an image.
    """
    listed = read_json(path, "ARO's captions", list)
    paths, boxes, captions, categories = list[Path](), list[Box](), list[str](), list[str]()
    for number, entry in enumerate(listed):
        where = f"{path}: entry {number}"
        image, right, wrong = text_fields(where, entry, ARO_FIELDS)
        box = [entry.get(name) for name in ARO_BOX]
        if not all(type(side) in (int, float) for side in box):
            raise UserError(f"{where} has no box ({', '.join(ARO_BOX)})")
        x, y, width, height = box
        paths.append(path.parent / "images" / image)
        boxes.append((x, y, x + width, y + height))
        captions += [right, wrong]
        categories.append(_category(where, entry, relations))
    count, left_out = Counter(categories), " ".join(LEFT_OUT.split()).split(", ")
    minimum = 1 if relations else MIN_IMAGES
    images = FileImages(path.parent, paths, boxes)
    found = Choices(spec, path.stem, "test", images, captions, categories, settings.limit)
    found.averaged = frozenset(name for name, n in count.items() if n >= minimum and name not in left_out)
    found.by_category = False
    return found


def _category(where: str, entry: dict[str, object], relations: bool) -> str:
    if relations:
        return text_fields(where, entry, ("relation_name",))[0]
    attributes = entry.get("attributes")
    if not (isinstance(attributes, list) and len(attributes) == 2):
        raise UserError(f'{where} needs a list "attributes" of two')
    return f"{attributes[0]}_{attributes[1]}"


def open_mmvp(spec: str, folder: Path, settings: Settings) -> MinimalPairs:
    """Open MMVP-VLM (Tong et al. 2024): Questions.csv, and MLLM_VLM Images/TYPE/ID.jpg.

    An odd id and the next even id form a pair; rows may be in any order. prompts=ensemble writes "a photo of " before
    each statement, as the benchmark's script scripts/evaluate_vlm.py does; prompts=simple takes the statement alone.

    Raises UserError: a column or an image is missing, an id has no partner, or the partner has another type.
    """
    path = folder / "Questions.csv"
    rows: dict[int, tuple[str, str]] = {}  # id -> type, statement
    for where, row in _table_rows(path, MMVP_COLUMNS):
        question, of_type, statement = (row[column].strip() for column in MMVP_COLUMNS)
        if not (question.isdecimal() and of_type and statement):
            raise UserError(f"{where} has no id, type or statement")
        if int(question) in rows:
            raise UserError(f"{path} has question {question} twice")
        rows[int(question)] = of_type, statement
    numbers = sorted(rows)
    for number in numbers:
        partner = number + 1 if number % 2 else number - 1
        if partner not in rows or rows[number][0] != rows[partner][0]:
            raise UserError(f"{path}: question {number} has no partner {partner} of its type")
    images = FileImages(folder, [folder / "MLLM_VLM Images" / rows[number][0] / f"{number}.jpg" for number in numbers])
    (template,) = prompts.select_templates(MMVP_TEMPLATES, settings.prompts)
    captions = [template.replace("{c}", rows[number][1]) for number in numbers]
    types = [rows[number][0] for number in numbers[::2]]
    found = MinimalPairs(spec, "mmvp", "test", images, captions, types, settings.limit)
    found.prompts = settings.prompts
    return found


def open_winogavil(spec: str, path: Path, settings: Settings) -> Associations:
    """Open WinoGAViL (Bitton et al. 2022): winogavil_dataset.csv at `path`, candidates in images/NAME.png.

    A row has a cue, 5 to 12 candidates, and those that a person associates with the cue. The prompt is DataComp's: "A
    dog", "An eagle".

    Raises UserError: the table or a column is missing, a row is faulty, or an image is missing.
    """
    rows = [_cue(where, row) for where, row in _table_rows(path, WINOGAVIL_COLUMNS)]
    rows = [rows[i] for i in draw(len(rows), settings.limit)]
    names = sorted({name for _, listed, _ in rows for name in listed})
    index = {name: i for i, name in enumerate(names)}
    images = FileImages(path.parent, [path.parent / "images" / f"{name}.png" for name in names])
    cues = [f"{'An' if cue[0] in 'aeiou' else 'A'} {cue}" for cue, _, _ in rows]
    candidates = [[index[name] for name in listed] for _, listed, _ in rows]
    right = [[i for i, name in enumerate(listed) if name in chosen] for _, listed, chosen in rows]
    hashes = {"captions": content_hash(cues), "candidates": content_hash([candidates, right])}
    found = Associations(spec, "winogavil", "test", images, cues, hashes)
    found.candidates, found.right = candidates, right
    return found


def _cue(where: str, row: dict[str, str]) -> tuple[str, list[str], list[str]]:
    """Return cue, candidates and associations."""
    try:
        candidates, chosen = load_json(row["candidates"]), load_json(row["associations"])
        cue = row["cue"].strip().lower()
        if cue and set(chosen) & set(candidates):
            return cue, candidates, chosen
    except (TypeError, ValueError):
        pass
    raise UserError(f"{where} needs a cue, a list of candidates, and associations among them")


def _table_rows(path: Path, columns: tuple[str, ...]) -> list[tuple[str, dict[str, str]]]:
    """Return location and cells of each row of a CSV file. Raises UserError: a column is missing, or all rows."""
    text = read_text(path, f"the columns {', '.join(columns)}").removeprefix("\ufeff")
    table = csv.DictReader(io.StringIO(text, newline=""), restval="")
    for column in columns:
        if column not in (table.fieldnames or ()):
            raise UserError(f"{path} has no column {column!r}; expected {', '.join(columns)}")
    rows = [(f"{path} row {number}", row) for number, row in enumerate(table, 2)]
    if not rows:
        raise UserError(f"{path} has no rows")
    return rows
