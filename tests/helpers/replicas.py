"""Small copies of published data sets in their original layouts, so that torchvision's own readers load them."""

import csv
import io
import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import torchvision.datasets as tv
from PIL import Image
from scipy.io import savemat

from evaluation.datasets.composition import NUMBERS
from evaluation.datasets.torchvision_sets import LabelledSTL10
from tests.helpers.folder import jpeg as jpeg_of

# classes of Oxford-IIIT Pet by class id, spelled as in its file names
BREEDS = (
    "Abyssinian american_bulldog american_pit_bull_terrier basset_hound beagle Bengal Birman Bombay boxer "
    "British_Shorthair chihuahua Egyptian_Mau english_cocker_spaniel english_setter german_shorthaired great_pyrenees "
    "havanese japanese_chin keeshond leonberger Maine_Coon miniature_pinscher newfoundland Persian pomeranian pug "
    "Ragdoll Russian_Blue saint_bernard samoyed scottish_terrier shiba_inu Siamese Sphynx staffordshire_bull_terrier "
    "wheaten_terrier yorkshire_terrier "
)
# folders of Caltech-101 in sorted order
CALTECH = (
    "BACKGROUND_Google Faces Faces_easy Leopards Motorbikes accordion airplanes anchor ant barrel bass beaver "
    "binocular bonsai brain brontosaurus buddha butterfly camera cannon car_side ceiling_fan cellphone chair "
    "chandelier cougar_body cougar_face crab crayfish crocodile crocodile_head cup dalmatian dollar_bill dolphin "
    "dragonfly electric_guitar elephant emu euphonium ewer ferry flamingo flamingo_head garfield gerenuk gramophone "
    "grand_piano hawksbill headphone hedgehog helicopter ibis inline_skate joshua_tree kangaroo ketch lamp laptop "
    "llama lobster lotus mandolin mayfly menorah metronome minaret nautilus octopus okapi pagoda panda pigeon pizza "
    "platypus pyramid revolver rhino rooster saxophone schooner scissors scorpion sea_horse snoopy soccer_ball "
    "stapler starfish stegosaurus stop_sign strawberry sunflower tick trilobite umbrella watch water_lilly wheelchair "
    "wild_cat windsor_chair wrench yin_yang "
)


def jpeg(seed: int) -> bytes:
    """Return a JPEG of 8 px, whose colour depends on the seed."""
    red, green, blue = np.random.default_rng(seed).integers(0, 256, 3)
    return jpeg_of(f"rgb({red},{green},{blue})", 8)


def write(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def write_png(path: Path, colour: tuple[int, int, int]) -> None:
    """Write a PNG of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), colour).save(path)


def write_parquet(path: Path, columns: dict[str, Any], kinds: dict[str, Any]) -> None:
    """Write a data set of Hugging Face `datasets`; `kinds`: the type of each column."""
    path.parent.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_dict(columns, features=datasets.Features(kinds)).to_parquet(path)


def pixels(n: int, seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def cifar(root: Path, classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write CIFAR-10 or CIFAR-100 as pickled batches, and remove the checksums of the original from torchvision."""
    reader, key = (tv.CIFAR10, "labels") if classes == 10 else (tv.CIFAR100, "fine_labels")
    names = [f"kind_{c}" for c in range(classes)]
    batches = [(name, 2 * classes) for name, _ in reader.train_list] + [(name, classes) for name, _ in reader.test_list]
    for number, (name, count) in enumerate(batches):
        entry = {"data": pixels(count, number, 3072), key: [i % classes for i in range(count)]}
        write(root / reader.base_folder / name, pickle.dumps(entry))
    write(root / reader.base_folder / reader.meta["filename"], pickle.dumps({reader.meta["key"]: names}))
    for field in ("train_list", "test_list"):
        monkeypatch.setattr(reader, field, [[name, None] for name, _ in getattr(reader, field)])
    monkeypatch.setattr(reader, "meta", reader.meta | {"md5": None})


def stl10(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"]
    folder = root / "stl10_binary"
    for part, count in (("train", 20), ("test", 10)):
        write(folder / f"{part}_X.bin", pixels(count, count, 3, 96, 96).tobytes())
        write(folder / f"{part}_y.bin", bytes(i % 10 + 1 for i in range(count)))
    write(folder / "unlabeled_X.bin", b"")
    write(folder / "class_names.txt", "\n".join(names))
    for reader in (LabelledSTL10, tv.STL10):
        for field in ("train_list", "test_list"):
            monkeypatch.setattr(reader, field, [[name, None] for name, _ in getattr(reader, field)])


def food101(root: Path) -> None:
    names = ["apple_pie", "baklava", "club_sandwich"]
    for part, count in (("train", 4), ("test", 2)):
        listed = {name: [f"{name}/{part}{i}" for i in range(count)] for name in names}
        write(root / "food-101" / "meta" / f"{part}.json", json.dumps(listed))
        for number, path in enumerate(path for paths in listed.values() for path in paths):
            write(root / "food-101" / "images" / f"{path}.jpg", jpeg(number))


def dtd(root: Path) -> None:
    folder = root / "dtd" / "dtd"
    for seed, part in enumerate(("train", "val", "test")):
        listed = [f"{name}/{name}_{part}{i}.jpg" for name in ("banded", "woven") for i in range(2 + seed)]
        write(folder / "labels" / f"{part}1.txt", "\n".join(listed) + "\n")
        for number, path in enumerate(listed):
            write(folder / "images" / path, jpeg(10 * seed + number))


def flowers102(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "flowers-102"
    for number in range(1, 13):
        write(folder / "jpg" / f"image_{number:05d}.jpg", jpeg(number))
    savemat(folder / "imagelabels.mat", {"labels": np.array([[1, 102, 3] * 4])})
    savemat(folder / "setid.mat", {"trnid": [[1, 2, 3]], "valid": [[4, 5, 6]], "tstid": [[7, 8, 9, 10, 11, 12]]})
    no_sums = {key: (name, None) for key, (name, _) in tv.Flowers102._file_dict.items()}
    monkeypatch.setattr(tv.Flowers102, "_file_dict", no_sums)


def pets(root: Path) -> None:
    folder = root / "oxford-iiit-pet"
    for part, count in (("trainval", 3), ("test", 2)):
        rows = []
        for label, name in enumerate(BREEDS.split(), 1):
            for i in range(count):
                image = f"{name}_{part}{i}"
                rows.append(f"{image} {label} 1 1")
                write(folder / "images" / f"{image}.jpg", jpeg(label + 100 * i))
        write(folder / "annotations" / f"{part}.txt", "\n".join(rows) + "\n")


def caltech101(root: Path) -> None:
    """Write 102 folders, with 31 + c % 3 images in folder c."""
    picture = jpeg(0)
    for c, name in enumerate(CALTECH.split()):
        folder = root / "caltech101" / "101_ObjectCategories" / name
        folder.mkdir(parents=True)
        for i in range(31 + c % 3):
            (folder / f"image_{i + 1:04d}.jpg").write_bytes(picture)


def cars(root: Path) -> None:
    folder = root / "stanford_cars"
    names = np.array(["Audi A5 Coupe 2012", "BMW X5 SUV 2007", "smart fortwo Convertible 2012"], dtype=object)
    (folder / "devkit").mkdir(parents=True)
    savemat(folder / "devkit" / "cars_meta.mat", {"class_names": names})
    notes = {"train": folder / "devkit" / "cars_train_annos.mat", "test": folder / "cars_test_annos_withlabels.mat"}
    for part, path in notes.items():
        kinds = [("class", "u1"), ("fname", object)]
        rows = np.array([[(i % 3 + 1, f"{i:05d}.jpg") for i in range(6)]], dtype=kinds)
        savemat(path, {"annotations": rows})
        for i in range(6):
            write(folder / f"cars_{part}" / f"{i:05d}.jpg", jpeg(i))


def aircraft(root: Path) -> None:
    folder = root / "fgvc-aircraft-2013b" / "data"
    names = ["707-320", "A340-600", "Yak-42"]
    write(folder / "variants.txt", "\n".join(names) + "\n")
    for seed, part in enumerate(("train", "val", "test")):
        rows = [f"{seed}{i:06d} {names[i % 3]}" for i in range(6)]
        write(folder / f"images_variant_{part}.txt", "\n".join(rows) + "\n")
        for i, line in enumerate(rows):
            write(folder / "images" / f"{line.split()[0]}.jpg", jpeg(i))


def eurosat(root: Path) -> None:
    names = ["AnnualCrop", "Forest", "HerbaceousVegetation", "Highway", "Industrial"]
    names += ["Pasture", "PermanentCrop", "Residential", "River", "SeaLake"]
    class_folders(root / "eurosat" / "2750", names, 27)


def sun397(root: Path) -> None:
    folder = root / "SUN397"
    names = ["/a/abbey", "/a/apartment_building/outdoor", "/b/bakery/shop"]
    write(folder / "ClassName.txt", "\n".join(names) + "\n")
    for c, name in enumerate(names):
        for i in range(10):
            write(folder / name[1:] / f"sun_{c}{i:05d}.jpg", jpeg(c + i))


def imagenet(root: Path) -> None:
    """Write 1,000 WordNet folders with one image each in train and val, and torchvision's meta.bin."""
    ids = [f"n{1_000_000 + 7 * c:08d}" for c in range(1000)]
    for part in ("train", "val"):
        class_folders(root / "imagenet" / part, ids)
    torch.save(({name: (name,) for name in ids}, []), root / "imagenet" / "meta.bin")


def clevr(root: Path, counts: dict[str, list[int]]) -> Path:
    """Write CLEVR_v1.0 with counts[part][i] objects in image i; the scenes files list the images in reverse order."""
    folder = root / "clevr" / "CLEVR_v1.0"
    for part, numbers in counts.items():
        scenes = []
        for i, count in enumerate(numbers):
            name = f"CLEVR_{part}_{i:06d}.png"
            write_png(folder / "images" / part / name, (i, count, 0))
            scenes.append({"image_filename": name, "objects": [{"shape": "cube"}] * count})
        write(folder / "scenes" / f"CLEVR_{part}_scenes.json", json.dumps({"info": {}, "scenes": scenes[::-1]}))
    return folder


def karpathy(root: Path, name: str, folder: str, counts: list[int], filepath: str = "") -> Path:
    """Write a train image, test images (the i-th with counts[i] captions) and Karpathy's JSON; return the JSON file."""
    images = []
    for i, count in enumerate([5, *counts]):
        file = f"{i:012d}.jpg"
        sentences = [{"raw": f" caption {c} of {i} ", "tokens": ["caption"], "sentid": c} for c in range(count)]
        entry = {"filename": file, "split": "test" if i else "train", "sentences": sentences, "imgid": i}
        images.append(entry | ({"filepath": filepath} if filepath else {}))
        write(root / name / folder / filepath / file, jpeg(i))
    short = name.removeprefix("ms")  # the file of MSCOCO is dataset_coco.json
    path = root / name / f"dataset_{short}.json"
    write(path, json.dumps({"images": images, "dataset": short}))
    return path


def mmvp(root: Path, types: list[str], reverse: bool = False) -> Path:
    """Write MMVP-VLM with one pair for each of these types; return its folder."""
    folder = root / "MMVP_VLM"
    rows = []
    for number in range(1, 2 * len(types) + 1):
        kind = types[(number - 1) // 2]
        rows.append([str(number), kind, f'Statement "{number}", in words'])
        write(folder / "MLLM_VLM Images" / kind / f"{number}.jpg", jpeg(number))
    text = io.StringIO()
    csv.writer(text).writerows([["Question ID", "Type", "Statement"], *(rows[::-1] if reverse else rows)])
    write(folder / "Questions.csv", text.getvalue())
    return folder


def class_folders(folder: Path, names: Sequence[str], images: int = 1) -> None:
    """Write images in a folder for each class, as in ImageNet, its variants and EuroSAT."""
    for number, name in enumerate(names):
        for i in range(images):
            write(folder / name / f"{i}.jpeg", jpeg(number))


def sugar_crepe(root: Path, counts: dict[str, int], plus: bool = False) -> Path:
    """Write SugarCrepe, or SugarCrepe++ with `plus`, with counts[kind] entries.

    Keys of SugarCrepe's entries are even, because the published files have gaps too; SugarCrepe++ has lists.
    """
    folder = root / ("sugar_crepe_pp" if plus else "sugar_crepe")
    number = 0
    for kind, count in counts.items():
        entries: dict[str, object] = {}
        for i in range(count):
            entries[str(2 * i)] = {
                "filename": f"{number:012d}.jpg",
                "caption": f"a {kind} {number} on a table",
                "negative_caption": f"a table below a {kind} {number}",
            } | ({"id": i, "caption2": f"a table with a {kind} {number}"} if plus else {})
            write(folder / "val2017" / f"{number:012d}.jpg", jpeg(number))
            number += 1
        file = folder / "data" / f"{kind}.json" if plus else folder / f"{kind}.json"
        write(file, json.dumps([*entries.values()] if plus else entries))
    return folder


def valse(root: Path, pieces: Sequence[str], votes: list[int]) -> Path:
    """Write VALSE; in each piece, votes[i] of three annotators chose the caption of entry i alone."""
    folder = root / "valse"
    for number, piece in enumerate(pieces):
        entries = {}
        for i, count in enumerate(votes):
            name = f"{piece}_{i}.jpg"
            entries[f"{piece}_{i}"] = {
                "dataset": "SWiG", "original_split": "test", "dataset_idx": name, "linguistic_phenomena": piece,
                "image_file": name, "caption": f"A man {piece} {i}.", "classes": "man", "classes_foil": "dog",
                "mturk": {"foil": 3 - count, "caption": count, "other": 0}, "foil": f"A dog {piece} {i}.",
            }  # fmt: skip
            write(folder / "images" / name, jpeg(10 * number + i))
        write(folder / "data" / f"{piece}.json", json.dumps(entries))
    return folder


WHATSUP = {  # folder, relations in the names of images
    "a": ("controlled_images", ("left_of", "on", "right_of", "under")),
    "b": ("controlled_clevr", ("behind", "left_of", "right_of", "in-front_of")),
}


def whatsup(root: Path, objects: list[str], subset: str) -> Path:
    """Write What'sUp's set A or B, in which the images of the same objects are not together."""
    images, relations = WHATSUP[subset]
    entries = []
    for number, name in enumerate(relations):
        for i, one in enumerate(objects):
            others = (other for other in relations if other != name)
            captions = [f"A {one} {relation.replace('_', ' ')} a table" for relation in (name, *others)]
            path = f"{images}/{one}_{name}_table.jpeg"
            entries.append({"image_path": f"data/{path}", "caption_options": captions})
            write(root / "whatsup" / path, jpeg(10 * i + number))
    write(root / "whatsup" / f"{images}_dataset.json", json.dumps(entries))
    return root / "whatsup" / f"{images}_dataset.json"


def colorswap(root: Path, pairs: int) -> Path:
    """Write parquet files like those of stanfordnlp/colorswap."""
    for split in ("train", "test"):
        rows = range(pairs)
        texts = {f"caption_{k}": [f"{split} {i}, {k}" for i in rows] for k in (1, 2)}
        texts |= {
            "image_source": ["midjourney" if i % 2 else "dalle" for i in rows],
            "caption_source": ["human"] * pairs,
        }
        images = {f"image_{k}": [{"bytes": jpeg(2 * i + k), "path": None} for i in rows] for k in (1, 2)}
        kinds = {"id": datasets.Value("int32")} | dict.fromkeys(images, datasets.Image())
        kinds |= dict.fromkeys(texts, datasets.Value("string"))
        write_parquet(
            root / f"colorswap/data/{split}-00000-of-00001.parquet", {"id": [*rows], **images, **texts}, kinds
        )
    return root / "colorswap"


def winoground(root: Path, tags: list[str]) -> Path:
    """Write Winoground with one example for each tag; return its folder."""
    folder = root / "winoground" / "data"
    lines = []
    for number, tag in enumerate(tags):
        names = [f"ex_{number}_img_{i}" for i in (0, 1)]
        lines.append({
            "id": number, "image_0": names[0], "image_1": names[1], "caption_0": f"some {number} in a box",
            "caption_1": f"a box in some {number}", "tag": "Scope", "collapsed_tag": tag,
        })  # fmt: skip
        for i, name in enumerate(names):
            write_png(folder / "images" / f"{name}.png", (number, 100 * i, 0))
    write(folder / "examples.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    return root / "winoground"


def aro(root: Path, relations: list[str], attributes: list[tuple[str, str]]) -> Path:
    """Write VG-Relation with an image for each relation, VG-Attribution with an image for each pair of attributes."""
    folder = root / "aro"
    kinds: dict[str, list[dict[str, object]]] = {
        "relation": [{"relation_name": name} for name in relations],
        "attribution": [{"attributes": list(pair)} for pair in attributes],
    }
    for name, entries in kinds.items():
        for number, entry in enumerate(entries):
            entry |= {"image_path": f"{name}{number}.jpg", "true_caption": f"right {number}"}
            entry |= {"false_caption": f"wrong {number}", "bbox_x": 1, "bbox_y": 2, "bbox_w": 5, "bbox_h": 4}
            write(folder / "images" / f"{name}{number}.jpg", jpeg(number))
        write(folder / f"visual_genome_{name}.json", json.dumps(entries))
    return folder


def aro_order(root: Path, images: int) -> Path:
    """Write COCO-Order as a parquet file of Hugging Face `datasets`; return its folder."""
    columns: dict[str, list[object]] = {"images": [{"bytes": jpeg(i), "path": None} for i in range(images)]}
    for column in ("correct_caption", "hard_text_1", "hard_text_2", "hard_text_3", "hard_text_4"):
        columns[column] = [f"{column} of {i}" for i in range(images)]
    kinds = {name: datasets.Value("string") for name in columns} | {"images": datasets.Image()}
    write_parquet(root / "aro_coco_order/data/test-00000-of-00001.parquet", columns, kinds)
    return root / "aro_coco_order"


def countbench(root: Path, numbers: list[int], faulty: bool = False) -> Path:
    """Write nielsr/countbench's parquet file; `faulty` adds a row without an image, and one without its number word."""
    words = [NUMBERS[n - 2] for n in numbers]
    texts = [f"Photo {i}: {word.title()} cups and {word} spoons" for i, word in enumerate(words)]
    images: list[object] = [{"bytes": jpeg(i), "path": None} for i in range(len(numbers))]
    if faulty:
        texts, images = ["three cups", "3 cups", *texts], [None, {"bytes": jpeg(99), "path": None}, *images]
        numbers = [3, 3, *numbers]
    columns = {"image_url": ["http://x"] * len(texts), "text": texts, "number": numbers, "image": images}
    text = datasets.Value("string")
    kinds = {"image_url": text, "text": text, "number": datasets.Value("int64"), "image": datasets.Image()}
    write_parquet(root / "countbench/data/train-00000-of-00001-cf54c241ba947306.parquet", columns, kinds)
    return root / "countbench"


def xtd10(root: Path, captions: dict[str, list[str]]) -> None:
    """Write XTD10 and its images of COCO; `captions`: path of the file below the repository -> a caption per image."""
    names = [f"COCO_train2014_{i:012d}.jpg" for i in range(len(next(iter(captions.values()))))]
    write(root / "xtd10" / "XTD10" / "test_image_names.txt", "\n".join(names) + "\n")
    for path, lines in captions.items():
        write(root / "xtd10" / path, "\n".join(lines) + "\n")
    for i, name in enumerate(names):
        write(root / "mscoco" / "train2014" / name, jpeg(i))


def multi30k(root: Path, images: int) -> Path:
    """Write Multi30k's test set of 2016, unpacked, and images of Flickr30k; each task has an order of its own."""
    names = [f"{i}.jpg" for i in range(images)]
    for task, file, order in ((1, "test_2016_flickr", names), (2, "test_2016_images", names[::-1])):
        write(root / f"multi30k/data/task{task}/image_splits/{file}.txt", "\n".join(order) + "\n")
    for k in range(1, 6):
        for language in ("en", "de"):
            lines = [f"{language} {k} of {name}" for name in names[::-1]]
            write(root / f"multi30k/data/task2/raw/test_2016.{k}.{language}", "\n".join(lines) + "\n")
    lines = [f"fr of {name}" for name in names]
    write(root / "multi30k/data/task1/raw/test_2016_flickr.fr", "\n".join(lines) + "\n")
    for i, name in enumerate(names):
        write(root / "flickr30k" / "flickr30k-images" / name, jpeg(i))
    return root / "multi30k"


def xm3600(root: Path, captions: list[dict[str, list[str]]]) -> None:
    """Write Crossmodal-3600; `captions`: language -> captions, for each image."""
    lines = []
    for i, of_image in enumerate(captions):
        entry: dict[str, object] = {"image/key": f"{i:016x}", "image/locale": "cs"}
        for language, texts in of_image.items():
            entry[language] = {"caption": texts, "caption/tokenized": texts, "caption/tokenized/lowercase": texts}
        lines.append(json.dumps(entry, ensure_ascii=False))
        write(root / "xm3600" / "images" / f"{i:016x}.jpg", jpeg(i))
    write(root / "xm3600" / "captions.jsonl", "\n".join(lines) + "\n")


def winogavil(root: Path, sizes: list[tuple[int, int]]) -> Path:
    """Write WinoGAViL with a cue for each (number of candidates, number of right ones); return the table."""
    rows, names = [], [f"thing {i}" for i in range(12)]
    for number, (candidates, right) in enumerate(sizes):
        listed = [names[(number + i) % 12] for i in range(candidates)]
        cue = ("Eagle", "tree")[number % 2]
        rows.append([number, json.dumps(listed), cue, json.dumps(listed[candidates - right :]), right, candidates])
    text = io.StringIO()
    csv.writer(text).writerows([["", "candidates", "cue", "associations", "num_associations", "num_candidates"], *rows])
    folder = root / "winogavil"
    write(folder / "winogavil_dataset.csv", text.getvalue())
    for number, name in enumerate(names):
        write_png(folder / "images" / f"{name}.png", (number, 0, 0))
    return folder / "winogavil_dataset.csv"
