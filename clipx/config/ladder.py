"""Axes of ladders. A ladder repeats a recipe at several points of one axis (`clipx reproduce scale=AXIS`).

This module imports no slow library.
"""

# axis of a ladder (`scale:` in a recipe) -> the settings that take the value of a point
AXES: dict[str, tuple[str, ...]] = {
    "samples": ("train.samples",),
    "data": ("data.scenes.num_train",),  # other data have no setting for their size
    "width": ("model.image.name", "model.text.name"),
    "batch": ("train.batch_size",),
}
MIN_POINTS = 4  # smallest number of points of a ladder
