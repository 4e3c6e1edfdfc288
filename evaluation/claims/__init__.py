"""Claims of the five papers (`table`), the rule for verdicts (`verdict`) and the evidence from runs (`evidence`)."""
