"""`clipx export`: files for open_clip, or a model on the Hugging Face hub."""
