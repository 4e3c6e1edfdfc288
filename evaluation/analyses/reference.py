"""Published zero-shot results of published weights, by which the evaluation itself is checked.

Values: CLIP-benchmark's and open_clip's result tables, as fractions. Class sets marked per class there are
compared by mean per-class accuracy. Tolerance: 0.3 points.
"""

TOLERANCE = 0.003

MODELS = (
    "open_clip:ViT-B-32/openai",
    "open_clip:ViT-B-16/openai",
    "open_clip:RN50/openai",
    "open_clip:ViT-B-32/laion2b_s34b_b79k",
)

# data set, metric -> the value of each of MODELS
VALUES: dict[tuple[str, str], tuple[float, float, float, float]] = {
    ("imagenet", "top1"): (0.6332, 0.6834, 0.5982, 0.6656),
    ("cifar10", "top1"): (0.8983, 0.9077, 0.7157, 0.9358),
    ("cifar100", "top1"): (0.6423, 0.6695, 0.4030, 0.7555),
    ("clevr_count", "top1"): (0.2320, 0.2123, 0.2171, 0.1535),
    ("caltech101", "mean_per_class"): (0.8758, 0.8901, 0.8329, 0.9105),
    ("flowers102", "mean_per_class"): (0.6670, 0.6907, 0.6522, 0.7024),
    ("pets", "mean_per_class"): (0.8700, 0.8886, 0.8529, 0.9076),
    ("aircraft", "mean_per_class"): (0.1953, 0.2421, 0.1703, 0.2453),
    ("food101", "top1"): (0.8400, 0.8872, 0.8080, 0.8269),
    ("dtd", "top1"): (0.4436, 0.4495, 0.4154, 0.5569),
    ("sun397", "top1"): (0.6248, 0.6435, 0.5994, 0.6872),
    ("cars", "top1"): (0.5963, 0.6477, 0.5453, 0.8607),
    ("eurosat", "top1"): (0.5044, 0.5594, 0.4081, 0.4806),
    ("stl10", "top1"): (0.9713, 0.9825, 0.9419, 0.9656),
    ("mscoco", "image_to_text_recall@1"): (0.5012, 0.5242, 0.4884, 0.5632),
    ("mscoco", "text_to_image_recall@1"): (0.3044, 0.3309, 0.2854, 0.3934),
}

# The very copies that the values come from: data sets clip-benchmark/NAME of the hub, with their test splits.
COPIES: dict[str, str] = {
    "imagenet": "wds_imagenet1k",
    "cifar10": "wds_vtab-cifar10",
    "cifar100": "wds_vtab-cifar100",
    "clevr_count": "wds_vtab-clevr_count_all",
    "caltech101": "wds_vtab-caltech101",
    "flowers102": "wds_vtab-flowers",
    "pets": "wds_vtab-pets",
    "aircraft": "wds_fgvc_aircraft",
    "food101": "wds_food101",
    "dtd": "wds_vtab-dtd",
    "sun397": "wds_sun397",
    "cars": "wds_cars",
    "eurosat": "wds_vtab-eurosat",
    "stl10": "wds_stl10",
    "mscoco": "wds_mscoco_captions",
}

# Their original layout has no test split, so ours is another draw: compared by our own 95% interval.
DRAWN = ("caltech101", "eurosat", "sun397")
