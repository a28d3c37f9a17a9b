"""The commands that draw, or drive the page: one file each, with the contract of :mod:`ghosted.commands`."""
