"""The Ghosted Layers Explorer: builds the page and launches it."""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

from analysis import limits, serving
from ghosted.errors import InputError

# Read by gradio when it is imported: nothing is sent anywhere.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
# Read by torch's thread pool: where browser and model share few cores, threads that spin while they wait for one
# another make a forward pass up to twenty times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def refuse(message: str) -> NoReturn:
    """End with one sentence and exit code 2."""
    print(f"{message[0].upper()}{message[1:]}; see python app.py --help.", file=sys.stderr)
    sys.exit(2)


def main() -> None:
    """Launch the page on the loopback address, unless told otherwise."""
    flags = argparse.ArgumentParser(prog="app.py", description=__doc__)
    serving.add_flags(flags)
    flags.add_argument("--open", action="store_true", help="open the page in the browser")
    limits.add_flags(flags)
    flags.error = refuse
    chosen = flags.parse_args()
    if chosen.port is not None and not 0 < chosen.port < 65_536:
        refuse(f"the port must be a number from 1 to 65535, not {chosen.port}")
    try:
        accounts = serving.accounts(chosen.auth) if chosen.auth is not None else None
    except InputError as error:
        refuse(str(error).rstrip("."))

    host = chosen.host or os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1")
    alone = serving.is_alone(host, os.environ) and not chosen.demo
    chosen.demo = chosen.demo or serving.is_demo(os.environ)
    if not alone:
        os.environ.update(serving.shared_environment())
    bounds = limits.limits_from(chosen, alone)
    if chosen.max_cache is not None or "GHOSTED_CACHE_LIMIT" not in os.environ:
        os.environ["GHOSTED_CACHE_LIMIT"] = str(bounds.cache)

    from analysis.library import prepare_default
    from analysis.page import build_page, look_and_feel

    if "SPACE_ID" in os.environ:
        prepare_default()
    options = look_and_feel(bounds) | {"server_port": chosen.port, "inbrowser": chosen.open, "auth": accounts}
    if chosen.host:
        options["server_name"] = chosen.host
    page = build_page(limits=bounds)
    try:
        page.launch(**options)
    except OSError as error:
        refuse(f"the page cannot be served there ({str(error).splitlines()[0].rstrip('.')})")


if __name__ == "__main__":
    main()
