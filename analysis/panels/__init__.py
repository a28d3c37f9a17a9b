"""The page's panels: one file each. A panel builds its components and says what they show for a run.

Every panel module has ``build(...)``, which creates its components and returns them by name, and, where it shows
results, ``show(panel, run, session)``, which returns the updates of its components for a run.
"""
