"""The figures of ``python -m ghosted bench``: one file each.

A figure's module states ``measure(experiment, on_event) -> dict`` with ``ratio`` and ``spread``, and ``TOKENS`` where
its target holds for another number of tokens than an experiment's default.
"""
