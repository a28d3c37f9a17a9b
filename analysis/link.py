"""How is an experiment an address? A readable query string, written while people work and read when a page opens.

Only what differs from the page's default is in it, under the names that the command line uses: ``remove=3,12-17``,
``methods=none,ghosted``. Naming blocks means that they were chosen by hand, so ``criterion`` need not say so. A file of
somebody's machine is never named: a text stands there by the sha256 of its content, a model folder not at all.

Reading never fails. What cannot be read gets one sentence and the default in its place.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote_plus, urlsplit

from analysis.lessons import lessons
from analysis.portable import HASH, LOCAL, at_hand, is_hash, is_local_model, shareable
from analysis.settings import DEFAULT
from analysis.speech import language, say
from ghosted.errors import GhostedError, InputError
from ghosted.experiment import Experiment
from ghosted.registry import pick
from ghosted.texts import SOURCES

CLEAN = ",-:/"
"""Letters that stay as they are, so that the address can be read aloud."""
MOST = 20_000
"""Letters of a query that are read; no server passes on more."""

NAMES = {field.name: field.name.replace("_", "-") for field in dataclasses.fields(Experiment)}
_FIELDS = {key: name for name, key in NAMES.items()} | {"method": "methods", "calibration": "text"}
_WHOLE = ("count", "tokens", "window", "calibration_window", "windows", "rank", "distill", "batch", "seed",
          "max_new_tokens")
_TEXTS = ("text", "held_out")
_OWN = ("hide", "lesson", "embed", "lang")

@dataclass(frozen=True)
class Flags:
    """What a link says about the page rather than the experiment.

    Attributes:
        hide: panels and controls that a teacher took away, by name.
        lesson: the lesson that is open, and its step: ``cut.2``.
        embed: whether the page stands in another page.
        theme: ``light`` or ``dark``; gradio's own ``__theme``.
        lang: the language that is asked for, ``de`` or ``en``.
    """

    hide: tuple[str, ...] = ()
    lesson: str = ""
    embed: bool = False
    theme: str = ""
    lang: str = ""

    @classmethod
    def of(cls, query: str | Mapping[str, str]) -> Flags:
        """Read them from a query; names that no panel can have are left out."""
        given = _pairs(query)[0]
        hidden = tuple(name for name in given.get("hide", "").split(",") if re.fullmatch(r"[\w-]{1,60}", name))
        return cls(hidden, given.get("lesson", "")[:60], given.get("embed") == "1", given.get("__theme", "")[:20],
                   given.get("lang", "")[:8])

    def notices(self) -> list[str]:
        """Return a sentence on what they name and there is not."""
        name = self.lesson.partition(".")[0]
        known = not self.lesson or name in lessons()
        return [] if known else [say("address.lesson", name=repr(name[:40]), all=", ".join(lessons()))]

    def query(self) -> str:
        """Return them as a part of a query, empty where nothing is set."""
        said = {"hide": ",".join(self.hide), "lesson": self.lesson, "embed": "1" if self.embed else "",
                "__theme": self.theme, "lang": self.lang}
        return "&".join(f"{key}={_quoted(value)}" for key, value in said.items() if value)


def query_of(experiment: Experiment, uploads: Mapping[str, str] | None = None) -> str:
    """Return the experiment as a query string without its question mark.

    Args:
        experiment: any; the blocks of one whose criterion chooses mean nothing and are left out.
        uploads: the texts that may be named by their sha256, sha256 of the content to path.
    """
    safe = shareable(experiment, uploads)
    default = DEFAULT if safe.criterion != "manual" else dataclasses.replace(DEFAULT, criterion="manual", remove="")
    said = {} if safe.criterion != "manual" else {"remove": safe.remove}
    for name in NAMES:
        value = getattr(safe, name)
        if name != "remove" and value != getattr(default, name):
            said[name] = _written(value)
    return "&".join(f"{NAMES[name]}={_quoted(said[name])}" for name in NAMES if name in said)


def experiment_of(
    query: str | Mapping[str, str], uploads: Mapping[str, str] | None = None
) -> tuple[Experiment, list[str]]:
    """Read an experiment from a query string or from its decoded pairs; nothing is fetched.

    Args:
        query: with or without its question mark.
        uploads: the texts at hand, sha256 of the content to path.

    Returns:
        The experiment, and one sentence for each value that could not be taken over.
    """
    pairs, notices = _pairs(query)
    given: dict[str, Any] = {}
    for key, value in pairs.items():
        name = _FIELDS.get(key.replace("_", "-"))
        if name is None:
            notices += _typo(key)
            continue
        try:
            given[name] = _read(name, value.strip() if name != "prompt" else value, notices)
        except GhostedError as error:
            notices.append(say("address.cannot", name=NAMES[name], why=_lower(str(error))))
    experiment = _joined(given, notices)
    experiment, asked = at_hand(experiment, uploads)
    return experiment, notices + asked


def address_of(request_url: str) -> str:
    """Return the page's address without a query: on a Space its public host, elsewhere the one that was asked for."""
    parts = urlsplit(request_url)
    path = parts.path.partition("/gradio_api")[0].rstrip("/") + "/"
    host = os.environ.get("SPACE_HOST", "").split(",")[0].strip()
    if re.fullmatch(r"[A-Za-z0-9.-]+", host):
        return f"https://{host}{path}"
    return f"{parts.scheme}://{parts.netloc}{path}" if parts.netloc else path


def _pairs(query: str | Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    if not isinstance(query, str):
        return {str(key): str(value) for key, value in dict(query).items()}, []
    if len(query) > MOST:
        return {}, [say("address.longest", most=f"{MOST:,}")]
    return dict(parse_qsl(query.removeprefix("?"), keep_blank_values=True)), []


def _read(name: str, value: str, notices: list[str]) -> Any:
    """Turn one value of a query into a field's value; whether its range makes sense is asked later."""
    if name in _WHOLE or name == "temperature" or (name == "ridge" and value != "auto"):
        read = _number(name, value, whole=name in _WHOLE)
    elif name == "chat":
        read = _switch(value)
    elif name in ("methods", "evaluate"):
        read = _several(name, value, notices)
    elif name in ("model", "revision"):
        read = _model(name, value)
    elif name in _TEXTS:
        read = _text(value)
    else:
        read = value
    # Each value is tried on its own: a criterion's count may still follow, and blocks chosen by hand need none.
    if name == "criterion":
        return pick("ghosted.criteria", value, "criterion") and value
    return getattr(dataclasses.replace(DEFAULT, criterion="manual", **{name: read}), name)


def _number(name: str, value: str, whole: bool) -> int | float:
    pattern = r"-?\d{1,20}" if whole else r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?"
    if len(value) > 40 or not re.fullmatch(pattern, value, re.ASCII):
        kind = say("address.whole" if whole else "address.number")
        raise InputError(say("address.kind", kind=kind, given=repr(value[:40])))
    return int(value) if whole else float(value)


def _switch(value: str) -> bool:
    if value.lower() not in ("0", "1", "false", "true", "no", "yes"):
        raise InputError(say("address.switch", given=repr(value[:40])))
    return value.lower() in ("1", "true", "yes")


def _several(name: str, value: str, notices: list[str]) -> tuple[str, ...]:
    """Keep what can be used of a list; where nothing is left, the sentence is about the whole list."""
    kept, wrong = [], []
    for each in filter(None, (part.strip() for part in value.split(","))):
        try:
            kept.append(pick("ghosted.operators", each, "method") and each if name == "methods" else _text(each))
        except InputError as error:
            wrong.append(str(error))
    if not kept and (wrong or name == "methods"):
        raise InputError(wrong[0] if wrong else say("address.none"))
    notices += [say("address.left_out", name=NAMES[name], why=_lower(said)) for said in wrong]
    return tuple(kept)


def _model(name: str, value: str) -> str | None:
    from ghosted.models.naming import resolve

    if name == "revision":
        resolve(DEFAULT.model, value or None)
        return value or None
    if value != LOCAL and (is_local_model(value) or resolve(value).is_local):
        raise InputError(say("address.folder"))
    return value


def _text(value: str) -> str | None:
    if value in SOURCES or value == LOCAL or not value:
        return value or None
    if value.startswith(HASH) and not is_hash(value):
        raise InputError(say("address.hash"))
    if not is_hash(value):
        close = difflib.get_close_matches(value.lower(), SOURCES, n=1)
        hint = say("address.close", close=close[0]) if close else say("address.uploaded")
        raise InputError(say("address.no_text", name=repr(value[:40]), hint=hint))
    return value.lower()


def _joined(given: dict[str, Any], notices: list[str]) -> Experiment:
    """Put the values that were read into the default; blocks that are named were chosen by hand."""
    chosen = given.get("criterion", "manual" if "remove" in given else DEFAULT.criterion)
    if chosen != "manual":
        if given.pop("remove", ""):
            notices.append(say("address.both", criterion=chosen))
        if given.get("count", 1) < 1:
            del given["count"]
            notices.append(say("address.no_blocks", criterion=chosen, count=DEFAULT.count))
    given = {name: value for name, value in given.items() if value is not None or getattr(DEFAULT, name) is None}
    return dataclasses.replace(DEFAULT, **{"remove": ""} | given | {"criterion": chosen})


def _typo(key: str) -> list[str]:
    if key.startswith("__") or key in _OWN:
        return []
    close = difflib.get_close_matches(key[:60], _FIELDS, n=1, cutoff=0.75)
    return [say("address.typo", key=repr(key[:60]), close=close[0])] if close else []


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return re.sub(r"e\+?(-?)0*", r"e\1", repr(value).removesuffix(".0"))
    return ",".join(value) if isinstance(value, tuple) else "" if value is None else str(value)


def _quoted(value: str) -> str:
    whole = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # half a pair is no character
    return quote_plus(whole, safe=CLEAN)


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:] if language() == "en" else sentence
