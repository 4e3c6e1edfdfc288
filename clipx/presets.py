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
    # MSCOCO as published: data.root holds train2014/ and annotations/
    "coco": {
        "name": "coco",
        "source": "coco",
        "split": "train2014",
        "annotations": "annotations/captions_train2014.json",
        "captions": "random",  # paper 4
        "crop_scale": [0.5, 1.0],
    },
    # a table of paths and captions: data.root=FOLDER data.annotations=FILE
    "csv": {"name": "csv", "source": "csv", "captions": "each", "crop_scale": [0.5, 1.0], "split": "."},
    "tsv": {"name": "tsv", "source": "tsv", "captions": "each", "crop_scale": [0.5, 1.0], "split": "."},
    # through `datasets`: data.root=FOLDER or a name on the hub; hf_stream also needs data.num_samples
    "hf": {"name": "hf", "source": "hf", "crop_scale": [0.5, 1.0]},
    "hf_stream": {"name": "hf_stream", "source": "hf_stream", "crop_scale": [0.5, 1.0]},
    # remote or endless shards, resampled: data.urls=[...] data.num_samples=N
    "webdataset": {"name": "webdataset", "source": "webdataset", "crop_scale": [0.5, 1.0]},
}

OBJECTIVES: dict[str, dict[str, dict[str, Any]]] = {
    "clip": {"clip": {}},
}
