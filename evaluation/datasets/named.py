"""Data sets known by name, in their published layouts, in one folder `root`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from clipx.errors import UserError
from clipx.utils.registry import lookup
from evaluation.datasets import labelled, prompts
from evaluation.datasets.captioned import open_karpathy
from evaluation.datasets.composition import (
    RELATIONS,
    SUGAR_CREPE,
    SUGAR_CREPE_PP,
    VALSE,
    open_colorswap,
    open_countbench,
    open_foils,
    open_mmvp,
    open_order,
    open_visual_genome,
    open_whatsup,
    open_winogavil,
    open_winoground,
)
from evaluation.datasets.kinds import AnyDataset, Labelled, Split
from evaluation.datasets.labelled import open_clevr
from evaluation.datasets.shards import open_wds
from evaluation.types import Settings

Reader = Callable[[str, Path, str, int], Split]  # name, root, split, number of classes


@dataclass(frozen=True)
class Classes:
    """A set of images with classes."""

    what: str  # description in `clipx ls data`
    markers: dict[str, str]  # split -> a file or folder below root that exists if the split does
    read: Reader
    prompts: str  # key in clip-benchmark's table of templates
    names: str = ""  # key in clip-benchmark's table of class names; "" if the data set has a list of names
    get: str = ""  # where to get the data set; "" if `clipx data pull` downloads it

    @property
    def place(self) -> str:
        """The file or folder below root that must exist."""
        return self.markers["test"]

    def open(self, name: str, spec: str, root: Path, settings: Settings) -> Labelled:
        """Open the set. Raises UserError: the test split is missing, or the set's class names cannot be read."""
        require(name, root, self.place, self.get)
        names = prompts.classnames(self.names) if self.names else labelled.classnames(root, name)
        readers = {
            split: partial(self.read, name, root, split, len(names))
            for split, marker in self.markers.items()
            if (root / marker).exists()
        }
        return Labelled(spec, name, names, prompts.templates_of(self.prompts), readers, settings)


@dataclass(frozen=True)
class Placed:
    """A set whose layout module opens it, given its file or folder."""

    what: str
    place: str  # file or folder below root
    layout: Callable[[str, Path, Settings], AnyDataset]
    get: str = ""  # as in Classes
    hub: str = ""  # repository on the Hugging Face hub from which `clipx data pull` downloads the folder

    def open(self, name: str, spec: str, root: Path, settings: Settings) -> AnyDataset:
        """Open the set. Raises UserError: the set is missing or has another layout."""
        require(name, root, self.place, self.get)
        opened = self.layout(spec, root / self.place, settings)
        opened.short = name
        return opened


def _splits(path: str, names: str = "train test") -> dict[str, str]:
    """Return split -> `path` with {} replaced by the split."""
    return {split: path.format(split) for split in names.split()}


def _variant(what: str, classes: int, place: str) -> Placed:
    berkeley = f"people.eecs.berkeley.edu/~hendrycks/{place}.tar, unpacked"
    get = "ImageNet-Sketch.zip of github.com/HaohanWang/ImageNet-Sketch, unpacked" if place == "sketch" else berkeley
    return Placed(f"{classes:,} classes, {what}", place, partial(labelled.open_variant, classes), get)


def _shards(what: str, folder: str) -> Placed:
    """Return a set that CLIP-benchmark distributes as shards; its file benchmark/webdatasets.txt lists these sets."""
    return Placed(what, folder, open_wds, hub=f"clip-benchmark/{folder}")


def _datacomp(what: str, folder: str, metric: str = "") -> Placed:
    """Return a set that DataComp (Gadre et al. 2023) distributes as shards, with its main metric if not top-1."""
    return Placed(what, folder, partial(open_wds, metric=metric), hub=f"djghosh/{folder}")


def _karpathy(name: str, what: str, images: str) -> Placed:
    get = f"{images} and {KARPATHY}, both in ROOT/{name}"
    file = "coco" if name == "mscoco" else name
    return Placed(what, f"{name}/dataset_{file}.json", open_karpathy, get)


def _order(what: str, name: str, place: str) -> Placed:
    return Placed(what, place, open_order, hub=f"gowitheflow/{name}")


def _whatsup(subset: str, what: str, name: str) -> Placed:
    layout = partial(open_whatsup, relations=RELATIONS[subset])
    source = "the folder of Google Drive in README.md of github.com/amitakamath/whatsup_vlms"
    get = f"{source}: {name}_dataset.json, and {name}.tar.gz unpacked, both in ROOT/whatsup"
    return Placed(f"{what}: choice between four relations", f"whatsup/{name}_dataset.json", layout, get)


AIRCRAFT = "fgvc-aircraft-2013b/data/images_variant_{}.txt"
KARPATHY = "the splits from cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip"
ARO = (
    "dataset_zoo/aro_datasets.py of github.com/mertyg/vision-language-models-are-bows with download=True and "
    "root_dir=ROOT/aro"
)
CARS = "`hf download clip-benchmark/wds_cars --repo-type dataset --local-dir DIR`, then datasets=[wds:DIR]"
ALL = "train val test"

NAMED: dict[str, Classes | Placed] = {
    "imagenet": Classes(
        "1,000 classes, tested on the 50,000 validation images",
        {"train": "imagenet/train", "test": "imagenet/val"},
        labelled.imagenet,
        "imagenet1k",
        "imagenet1k",
        "`clipx data prepare imagenet sets=ROOT`, with the ILSVRC 2012 archives of image-net.org in ROOT/imagenet",
    ),
    "imagenetv2": Classes(
        "10,000 matched-frequency images",
        {"test": labelled.IMAGENETV2},
        labelled.imagenetv2,
        "imagenet1k",
        "imagenet1k",
        get="`hf download vaishaal/ImageNetV2 imagenetv2-matched-frequency.tar.gz --repo-type dataset`, unpacked",
    ),
    "imagenet_a": _variant("natural images that fooled a ResNet-50", 200, "imagenet-a"),
    "imagenet_o": _variant("images of no ImageNet class, labelled with a ResNet-50's prediction", 200, "imagenet-o"),
    "imagenet_r": _variant("paintings, toys and other renditions", 200, "imagenet-r"),
    "imagenet_sketch": _variant("sketches", 1000, "sketch"),
    "caltech101": Classes(
        "102 classes (metric: mean per class); split drawn by us, 30 images a class for training",
        _splits("caltech101/101_ObjectCategories"),
        labelled.caltech101,
        "caltech101",
        "caltech101",
    ),
    "cifar10": Classes("10 classes, 32 px", _splits("cifar-10-batches-py"), labelled.arrays, "cifar10"),
    "cifar100": Classes("100 classes, 32 px", _splits("cifar-100-python"), labelled.arrays, "cifar100"),
    "stl10": Classes("10 classes, 96 px", _splits("stl10_binary"), labelled.arrays, "stl10"),
    "food101": Classes("101 dishes", _splits("food-101/meta/{}.json"), labelled.listed, "food101"),
    "cars": Classes("196 models", _splits("stanford_cars/cars_{}"), labelled.listed, "cars", get=CARS),
    "aircraft": Classes(
        "100 variants (metric: mean per class)", _splits(AIRCRAFT, ALL), labelled.listed, "fgvc_aircraft"
    ),
    "flowers102": Classes(
        "102 flowers (metric: mean per class)", _splits("flowers-102/jpg", ALL), labelled.listed, "flowers", "flowers"
    ),
    "eurosat": Classes(
        "10 kinds of land use; split drawn by us", _splits("eurosat/2750"), labelled.listed, "eurosat", "eurosat"
    ),
    "dtd": Classes("47 textures", _splits("dtd/dtd/labels/{}1.txt", ALL), labelled.listed, "dtd"),
    "pets": Classes(
        "37 breeds (metric: mean per class)",
        {"train": "oxford-iiit-pet/annotations/trainval.txt", "test": "oxford-iiit-pet/annotations/test.txt"},
        labelled.pets,
        "pets",
        "pets",
    ),
    "sun397": Classes("397 scenes; split drawn by us", _splits("SUN397", ALL), labelled.listed, "sun397"),
    "clevr_count": Placed("3 to 10 objects, tested on CLEVR's validation images", "clevr/CLEVR_v1.0", open_clevr),
    "clevr_distance": _shards(
        "distance of the nearest object in CLEVR, 6 ranges", "wds_vtab-clevr_closest_object_distance"
    ),
    "camelyon17": _datacomp("lymph nodes with and without tumour, from a new hospital", "wds_wilds-camelyon17_test"),
    "country211": _shards("photos from 211 countries", "wds_country211"),
    "dmlab": _shards("scenes of a maze game, 6 classes of distance and reward", "wds_vtab-dmlab"),
    "dollar_street": _datacomp(
        "58 household objects (metric: top-5 in the worst of the income groups)",
        "wds_dollar_street_test",
        "worst_group_top5",
    ),
    "dsprites_location": _shards("x position of a shape", "wds_vtab-dsprites_label_x_position"),
    "dsprites_orientation": _shards("angle of a shape", "wds_vtab-dsprites_label_orientation"),
    "fer2013": _shards("7 facial expressions", "wds_fer2013"),
    "fmow": _datacomp(
        "62 uses of land, from satellites (metric: worst region)", "wds_wilds-fmow_test", "worst_group_top1"
    ),
    "geode": _datacomp("40 objects (metric: worst region)", "wds_geode_test", "worst_group_top1"),
    "gtsrb": _shards("43 German traffic signs", "wds_gtsrb"),
    "iwildcam": _datacomp("182 animals in camera traps (metric: macro F1)", "wds_wilds-iwildcam_test", "macro_f1"),
    "kitti_distance": _shards("distance of the nearest vehicle, 4 ranges", "wds_vtab-kitti_closest_vehicle_distance"),
    "mnist": _shards("10 handwritten digits", "wds_mnist"),
    "objectnet": _shards("113 of ImageNet's classes in unusual views", "wds_objectnet"),
    "pcam": _shards("lymph nodes with and without tumour (PatchCamelyon)", "wds_vtab-pcam"),
    "rendered_sst2": _shards("positive and negative reviews, as images of text", "wds_renderedsst2"),
    "resisc45": _shards("45 kinds of land use, from the air", "wds_vtab-resisc45"),
    "retinopathy": _shards("5 grades of diabetic retinopathy", "wds_vtab-diabetic_retinopathy"),
    "smallnorb_azimuth": _shards("azimuth of a toy", "wds_vtab-smallnorb_label_azimuth"),
    "smallnorb_elevation": _shards("elevation of a toy", "wds_vtab-smallnorb_label_elevation"),
    "svhn": _shards("10 digits of house numbers", "wds_vtab-svhn"),
    "voc2007": _shards("20 classes, cropped objects", "wds_voc2007"),
    "mscoco": _karpathy("mscoco", "5,000 images, 5 captions or more", "val2014/ of cocodataset.org"),
    "flickr30k": _karpathy(
        "flickr30k", "1,000 images, 5 captions", "flickr30k-images (on request, shannon.cs.illinois.edu)"
    ),
    "flickr8k": _karpathy("flickr8k", "1,000 images, 5 captions", "Flicker8k_Dataset"),
    "aro_attribution": Placed(
        "28,748 images, attributes exchanged between two objects",
        "aro/visual_genome_attribution.json",
        partial(open_visual_genome, relations=False),
        ARO,
    ),
    "aro_relation": Placed(
        "23,937 images, objects of a relation exchanged",
        "aro/visual_genome_relation.json",
        partial(open_visual_genome, relations=True),
        ARO,
    ),
    "aro_coco_order": _order("COCO's captions against four with words exchanged", "ARO-COCO-order", "aro_coco_order"),
    "aro_flickr_order": _order(
        "Flickr30k's captions against four with words exchanged", "ARO-Flickr-Order", "aro_flickr_order"
    ),
    "sugar_crepe": Placed(
        "7,512 choices between a right and a wrong caption, 7 kinds of changes",
        "sugar_crepe",
        partial(open_foils, layout=SUGAR_CREPE),
        "data/*.json of github.com/RAIVNLab/sugar-crepe and val2017/ of cocodataset.org, both in ROOT/sugar_crepe",
    ),
    "sugar_crepe_pp": Placed(
        "4,757 choices between two right captions and a wrong one, 5 kinds of changes",
        "sugar_crepe_pp",
        partial(open_foils, layout=SUGAR_CREPE_PP),
        "`git clone --depth 1 https://github.com/Sri-Harsha/scpp ROOT/sugar_crepe_pp`, and val2017/ of cocodataset.org "
        "in ROOT/sugar_crepe_pp",
    ),
    "valse": Placed(
        "captions and foils, 11 pieces on 6 linguistic phenomena and FOIL it",
        "valse",
        partial(open_foils, layout=VALSE),
        "`git clone --depth 1 https://github.com/Heidelberg-NLP/VALSE ROOT/valse`, and the images of Visual7W, SWiG, "
        "VisDial and COCO (train2014, val2014, val2017), all in ROOT/valse/images",
    ),
    "whatsup_a": _whatsup("a", "412 photos, a small object beside a large one", "controlled_images"),
    "whatsup_b": _whatsup("b", "408 photos, two objects on a table", "controlled_clevr"),
    "colorswap": Placed(
        "300 minimal pairs; both captions have the same words, with exchanged colours",
        "colorswap",
        open_colorswap,
        "`hf download stanfordnlp/colorswap --repo-type dataset --local-dir ROOT/colorswap` (after its conditions are "
        "accepted on the hub)",
    ),
    "winoground": Placed(
        "400 minimal pairs; both captions have the same words",
        "winoground",
        open_winoground,
        "`hf download facebook/winoground --repo-type dataset --local-dir ROOT/winoground` (after its conditions are "
        "accepted on the hub), then data/images.zip unpacked in its folder",
    ),
    "winogavil": Placed(
        "3,568 cues with 5 to 12 images, of which some are right",
        "winogavil/winogavil_dataset.csv",
        open_winogavil,
        "assets/ of github.com/WinoGAViL/WinoGAViL-experiments, after running download-images.py, in ROOT/winogavil",
    ),
    "mmvp": Placed("135 minimal pairs, 9 visual patterns", "MMVP_VLM", open_mmvp, hub="MMVP/MMVP_VLM"),
    "countbench": Placed(
        "540 captions with a number from two to ten, and the same with the eight other numbers",
        "countbench",
        open_countbench,
        hub="nielsr/countbench",
    ),
}


PULLED = [name for name, known in NAMED.items() if not known.get]  # the sets that `pull` downloads


def require(name: str, root: Path, marker: str, get: str) -> None:
    """Raise UserError if `root/marker` is missing; the message has `get`, or `clipx data pull` if `get` is ""."""
    if not (root / marker).exists():
        source = get.replace("ROOT", str(root))
        how = f"it comes from {source}" if source else f"get it with `clipx data pull {name} sets={root}`"
        raise UserError(f"no {root / marker}; {how}")


def present(name: str, root: Path) -> bool:
    """Return True if the set exists below root."""
    return (root / NAMED[name].place).exists()


def pull(name: str, root: Path) -> None:
    """Download a set that is missing into the folder where `clipx eval` looks for it, with torchvision or from the hub.

    Raises UserError: the name is unknown, or the set cannot be downloaded (the message says where to get it). Does not
    catch the libraries' errors of a failed download.
    """
    known = lookup(NAMED, name, "clipx data pull")
    if known.get:
        raise UserError(f"{name} cannot be pulled; it comes from {known.get.replace('ROOT', str(root))}")
    root.mkdir(parents=True, exist_ok=True)
    if isinstance(known, Placed) and known.hub:
        if present(name, root):
            return
        from huggingface_hub import snapshot_download

        unfinished = root / f".{known.place}"  # renamed when it is complete; the next call goes on with it
        snapshot_download(known.hub, repo_type="dataset", local_dir=unfinished)
        unfinished.rename(root / known.place)
    else:
        from evaluation.datasets.torchvision_sets import READERS

        READERS[name](str(root), "test", True)
