"""One file of drawings for each experiment of `clipx.theory`; what is drawn was computed there."""
