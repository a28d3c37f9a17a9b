"""Ghosted Layers: cut blocks out of a language model and see how far one linear map brings it back.

Importing this package is light; torch is imported on first use of what needs it.
"""

__version__ = "0.1.0"
