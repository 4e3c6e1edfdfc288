"""Image files with their captions in COCO's annotations or in a table."""

import json
from pathlib import Path

from clipx.config.schema import DataConfig
from tests.helpers.folder import COLOURS, jpeg


def write_coco(root: Path) -> dict[str, list[str]]:
    """Write six images, three captions of each, a caption of an unknown image, and a path outside the folder."""
    (root / "train2014").mkdir(parents=True)
    images = [{"id": 100 - i, "file_name": f"{colour}.jpg"} for i, colour in enumerate(COLOURS)]
    written: dict[str, list[str]] = {f"{colour}.jpg": [] for colour in COLOURS}
    annotations: list[dict[str, object]] = []
    for k in range(3):
        for image in images:
            text = f"{image['file_name']} caption {k}"
            annotations.append({"id": len(annotations), "image_id": image["id"], "caption": text + "\n"})
            written[str(image["file_name"])].append(text)
    annotations += [
        {"id": 999, "image_id": 7, "caption": "no such image"},
        {"id": 998, "image_id": 6, "caption": "out"},
    ]
    images.append({"id": 6, "file_name": "../../secret.jpg"})
    (root / "annotations").mkdir()
    path = root / "annotations" / "captions_train2014.json"
    path.write_text(json.dumps({"images": images, "annotations": annotations}))
    for colour in COLOURS:
        (root / "train2014" / f"{colour}.jpg").write_bytes(jpeg(colour))
    return written


def write_table(root: Path) -> DataConfig:
    """Write six images, and a table with the first caption of each image, then the second, then the third."""
    for colour in COLOURS:
        (root / f"{colour}.jpg").write_bytes(jpeg(colour))
    rows = [f"{colour}.jpg,caption {k}" for k in range(3) for colour in COLOURS]
    (root / "list.csv").write_text("image,caption\n" + "\n".join(rows))
    return DataConfig(
        name="t", source="csv", root=str(root), split=".", annotations="list.csv", captions="each", workers=0
    )
