"""What there is to see: numbers → tables → figures (pure functions), and the panels of the page."""
