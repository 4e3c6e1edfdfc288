"""Help, lists of names (`clipx ls`) and shell completion."""
