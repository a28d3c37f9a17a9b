"""The commands of ``python -m ghosted``: one file each.

A command's module states ``NAME`` (by default the file's name), ``HELP``, ``add_arguments(parser)``,
``run(args, on_event) -> dict`` (the JSON object) and ``table(payload) -> str`` (the same for people).
"""
