"""Who can reach the page? Only this machine, everybody with its address, or those with a password.

Whatever is not bound to the loopback address counts as shared: behind a tunnel, a proxy or a Space, too. Light enough
to be asked before gradio and the Hub client are imported, which read their settings then.
"""

from __future__ import annotations

import argparse
import ipaddress
from collections.abc import Mapping
from pathlib import Path

from ghosted.errors import InputError

TUNNELS = ("SPACE_ID", "GRADIO_ROOT_PATH", "GRADIO_SHARE")
"""Variables whose presence says that others come in by way of this machine; ``GRADIO_SHARE`` only where it is true."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say who may come in."""
    parser.add_argument("--port", type=int, default=None, help="port (default: the first free one from 7860)")
    parser.add_argument("--host", default=None, help="address, such as 0.0.0.0 (default: this machine only)")
    parser.add_argument("--demo", action="store_true", help="a public page: the catalogue's models, tight bounds")
    parser.add_argument("--auth", metavar="USER:PASSWORD", default=None,
                        help="ask for a name and a password; or a file with one USER:PASSWORD a line")


def is_alone(host: str, environment: Mapping[str, str]) -> bool:
    """Return whether only this machine can reach an address, given what the environment says about tunnels."""
    if any(_set(environment.get(name, ""), name) for name in TUNNELS):
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_demo(environment: Mapping[str, str]) -> bool:
    """Return whether the page runs on a public Space, which is always a demo."""
    return "SPACE_ID" in environment


def shared_environment() -> dict[str, str]:
    """Return what has to be set before the Hub client is imported: visitors get nothing by the owner's token."""
    return {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "GHOSTED_DEMO": "1"}


def accounts(said: str) -> list[tuple[str, str]]:
    """Return names and passwords.

    Args:
        said: ``USER:PASSWORD``, or the path of a file with one of these a line; ``#`` begins a comment.

    Raises:
        InputError: neither; the sentence does not repeat a password.
    """
    path = Path(said)
    try:
        lines = path.read_text("utf-8").splitlines() if path.is_file() else [said]
    except (OSError, ValueError):
        raise InputError("The file after --auth cannot be read; give one USER:PASSWORD a line, in UTF-8.") from None
    found = []
    for number, line in enumerate(filter(None, (each.strip() for each in lines)), 1):
        if line.startswith("#"):
            continue
        user, colon, password = line.partition(":")
        if not (user and colon and password):
            raise InputError(f"--auth wants USER:PASSWORD, or a file of such lines; entry {number} is none.")
        found.append((user, password))
    if not found:
        raise InputError("The file after --auth names nobody; give one USER:PASSWORD a line.")
    return found


def _set(value: str, name: str) -> bool:
    return value.lower() in ("1", "true", "yes") if name == "GRADIO_SHARE" else bool(value)
