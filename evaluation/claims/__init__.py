"""What the five papers claim (`table`), the rule (`verdict`), and runs held against both (`evidence`)."""
