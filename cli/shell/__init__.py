"""What the shell shows: lists of names, and completion."""
