"""The rendered data set: `ensure` returns its folder, `write` makes it; clipx.config.schema.ScenesConfig says what."""

from clipx.data.scenes.folder import ensure, write

__all__ = ["ensure", "write"]
