"""`clipx eval`: one model, or many runs."""
