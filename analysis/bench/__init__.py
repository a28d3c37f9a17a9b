"""Figures of speed that drive the page in a browser, with the contract of :mod:`ghosted.bench`."""
