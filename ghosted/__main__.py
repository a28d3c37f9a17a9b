"""The command line: ``python -m ghosted COMMAND``; each command is one file, found by name.

Tables for people on stdout by default, one JSON object with ``--json``; progress on stderr. Bad input ends with one
sentence on stderr and exit code 2.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from ghosted import cache, distributed, machine
from ghosted.errors import Cancelled, GhostedError, InputError
from ghosted.progress import Note, Progress, ignore
from ghosted.registry import gather

PACKAGES = ("ghosted.commands", "analysis.commands")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        message = message[0].upper() + message[1:]
        raise InputError(f"{message}; see python -m ghosted --help.")


class _ProgressLine:
    """Progress on stderr: one line that rewrites itself on a terminal, a line now and then elsewhere.

    Elsewhere the first line waits, too, so that an error that is found early stands alone.
    """

    EVERY = 15.0  # seconds

    def __init__(self) -> None:
        self._tty, self._stage, self._next = sys.stderr.isatty(), "", time.monotonic() + self.EVERY

    def __call__(self, event: Any) -> None:
        if isinstance(event, Note):
            self.clear()
            sys.stderr.write(f"{event}\n")
            sys.stderr.flush()
        if not isinstance(event, Progress):
            return
        if self._tty:
            sys.stderr.write(f"\r\x1b[K{event}")
        elif time.monotonic() >= self._next:
            sys.stderr.write(f"{event}\n")
            self._next = time.monotonic() + self.EVERY
        self._stage = event.stage
        sys.stderr.flush()

    def clear(self) -> None:
        if self._tty and self._stage:
            sys.stderr.write("\r\x1b[K")


def commands() -> dict[str, ModuleType]:
    """Return all commands by name; those that draw are looked up here, at run time, and only if they are there."""
    return gather(PACKAGES)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Threads that spin while they wait make a decoding step ten times slower on a machine that does anything else.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    line = _ProgressLine()
    try:
        parser = _Parser(prog="python -m ghosted", description="Cut blocks out of a language model and repair the gap.")
        subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
        known = commands()
        for name, module in known.items():
            sub = subparsers.add_parser(name, help=module.HELP, description=module.HELP)
            module.add_arguments(sub)
            sub.add_argument("--json", action="store_true", help="print one JSON object on stdout")
        args = parser.parse_args(argv)
        if args.command is None:
            raise InputError(f"Name a command: {', '.join(known)}; see python -m ghosted --help.")
        module = known[args.command]
        cache.Cache().check_limit()
        distributed.begin()
        payload = module.run(args, line if distributed.is_first() else ignore)
        line.clear()
        if distributed.is_first():
            print(json.dumps(payload, ensure_ascii=False) if args.json else module.table(payload), flush=True)
        distributed.end()
        return 0
    except Cancelled as stopped:
        return _fail(line, str(stopped), 130)
    except GhostedError as error:
        return _fail(line, str(error), 2)
    except KeyboardInterrupt:
        return _fail(line, "Stopped.", 130)
    except (MemoryError, RuntimeError) as error:
        if not machine.is_out_of_memory(error):
            raise
        return _fail(line, machine.OUT_OF_MEMORY, 2)
    except BrokenPipeError:
        _drop_stdout()
        return 0
    except OSError as error:
        _drop_stdout()
        return _fail(line, f"The result cannot be written or a file cannot be read: {error.strerror or error}.", 2)


def _drop_stdout() -> None:
    """Let what is left in stdout's buffer go nowhere, so that the interpreter's own last flush is silent."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(line: _ProgressLine, sentence: str, code: int) -> int:
    line.clear()
    if distributed.speaks_first():
        print(sentence, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
