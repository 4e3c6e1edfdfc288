"""Axes of a ladder, the points of an experiment on scale (`clipx reproduce scale=AXIS`). Imports no slow library."""

# axis of a ladder (`scale:` in a recipe) -> the settings that take the value of a point
AXES: dict[str, tuple[str, ...]] = {
    "samples": ("train.samples",),
    "data": ("data.scenes.num_train",),  # other data have no setting for their size
    "width": ("model.image.name", "model.text.name"),
    "batch": ("train.batch_size",),
}
MIN_POINTS = 4  # of a ladder
