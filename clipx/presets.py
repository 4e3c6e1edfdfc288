"""Named choices of the command line: `data=NAME` and `objective=NAME`."""

from typing import Any

DATA: dict[str, dict[str, Any]] = {
    "scenes": {
        "name": "scenes",
        "source": "scenes",
        "crop_scale": [1.0, 1.0],  # a cut object would make the count wrong
        "evaluation": [
            "wds:scenes_colour",
            "wds:scenes_count",
            "wds:scenes_shape",
            "captions:scenes_captions",
            "pairs:scenes_pairs",
        ],
    },
    # the official split as shards: data.root holds train/, dev/ and test/, five captions an image
    "flickr8k": {
        "name": "flickr8k",
        "source": "shards",
        "captions": "random",
        "crop_scale": [0.5, 1.0],
        "flip": True,
        "evaluation": ["captions:test"],
    },
    # any img2dataset shards: data.root=FOLDER data.name=NAME
    "shards": {"name": "shards", "source": "shards", "crop_scale": [0.5, 1.0], "split": "."},
    # the papers' training data; their recipes say what is done to the images, and evaluation sets lie in
    # data.root/evaluation. img2dataset writes the first two, DataComp's own script the third
    "cc3m": {"name": "cc3m", "source": "shards", "split": "train"},
    "cc12m": {"name": "cc12m", "source": "shards", "split": "train"},
    "datacomp_small": {"name": "datacomp_small", "source": "shards", "split": "shards"},
    # as published: data.root holds train2014/ and annotations/
    "mscoco": {
        "name": "mscoco",
        "source": "coco",
        "split": "train2014",
        "annotations": "annotations/captions_train2014.json",
        "captions": "random",
    },
}

OBJECTIVES: dict[str, dict[str, dict[str, Any]]] = {
    "clip": {"clip": {}},
}
