"""Ghosted Layers: cut blocks out of a language model and see how far one linear map brings it back.

Importing this package is light; torch is imported on first use of what needs it. These names are all that a script
needs; README shows them at work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ghosted.api import calibrate, choose, evaluate, export, fit, generate, load_model, prune
    from ghosted.experiment import Experiment
    from ghosted.loading import apply, load
    from ghosted.results import Run

__version__ = "0.1.0"
__all__ = [
    "Experiment", "Run", "apply", "calibrate", "choose", "evaluate", "export", "fit", "generate", "load", "load_model",
    "prune",
]
_ELSEWHERE = {"Experiment": "experiment", "Run": "results", "apply": "loading", "load": "loading"}


def __getattr__(name: str) -> Any:
    """Import one of :data:`__all__` when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(f"{__name__}.{_ELSEWHERE.get(name, 'api')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, "__doc__", "__version__"})
