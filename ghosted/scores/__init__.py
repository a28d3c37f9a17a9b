"""How good is a repair? At the boundary (:mod:`.residual`), further down and in perplexity (:mod:`.perplexity`)."""
