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
}

OBJECTIVES: dict[str, dict[str, dict[str, Any]]] = {
    "clip": {"clip": {}},
    # paper 3, appendix H; take temperature.kind=fixed with both, they learn no temperature
    "sogclr": {"sogclr": {"gamma": 0.8}},
    "nuclr": {"nuclr": {"gamma": 0.8, "zeta0": -0.05, "freeze_epochs": 5}},
}
