"""The papers' names of data sets, and what their folders may be called (see `measures.plain`)."""

ALIASES = {
    "ImageNet": ("imagenet", "imagenet1k"),
    "ImageNetV2": ("imagenetv2",),
    "Aircraft": ("aircraft", "fgvcaircraft"),
    "Caltech-101": ("caltech101",),
    "CIFAR-10": ("cifar10",),
    "CIFAR-100": ("cifar100",),
    "STL-10": ("stl10",),
    "Food-101": ("food101",),
    "Flowers": ("flowers", "flowers102"),
    "Pets": ("pets", "oxfordiiitpet"),
    "Cars": ("cars", "stanfordcars"),
    "EuroSAT": ("eurosat",),
    "DTD": ("dtd",),
    "SUN397": ("sun397",),
    "MSCOCO": ("mscoco", "mscococaptions", "coco"),
    "Flickr30k": ("flickr30k",),
    "CLEVR-Count": ("clevr", "clevrv10", "clevrcount", "clevrcounts", "clevrcountall"),
    "MMVP": ("mmvp", "mmvpvlm"),
}


def aliases(*names: str) -> tuple[str, ...]:
    """All names that the folders of some of them may have."""
    return tuple(alias for name in names for alias in ALIASES[name])
