"""Lists of names (`clipx ls`) and shell completion."""
