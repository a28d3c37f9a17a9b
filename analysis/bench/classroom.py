"""What happens when a class opens the page at once, and are all its answers right?

``python app.py`` runs as a process of its own; the students are threads of this one, which send what a browser would
(:mod:`analysis.bench._visitor`). A first student runs the lesson. Then all open its link and press Run at t = 0; each
changes to a range of its own every 10 s, opens the finished run anew every 30 s and has 32 tokens written every 60 s,
from a prompt of its own. Every answer is compared with what the library says for one user alone: numbers to the three
digits that the page shows, texts letter by letter. ``ratio`` is the 95th percentile of a range change against its
target of two seconds.

Nobody does it in step: each student's clock is late by a share of the ten seconds. The pictures of a range change are
asked for, too, but only its numbers are timed. A generation is asked anew each time
(by another seed, which greedy writing does not use), so that none comes out of a cache.
"""

from __future__ import annotations

import re
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from analysis.bench._visitor import Refused, Site, Visitor
from analysis.bench.page import served
from analysis.link import query_of
from analysis.record import Record
from analysis.settings import FIELDS, values_of
from analysis.tables import left_line
from ghosted.errors import ResourceError
from ghosted.experiment import Experiment
from ghosted.progress import Progress, Stage, drain
from ghosted.removed import RemovedBlocks

ONLY_BY_NAME = True
OPTIONS = ("students", "minutes")
TARGET_S = 2.0
CHANGE_EVERY, OPEN_EVERY, WRITE_EVERY = 10.0, 30.0, 60.0
NEW_TOKENS = 32
PATIENCE = 480.0
METHODS = ("none", "linearpatch", "replaceme", "ghosted")
PROMPTS = (
    "The river was quiet, and", "A good teacher knows that", "In the year 1820 the town", "To bake bread you need",
    "The smallest prime number", "She opened the letter and", "Water boils when", "On the other side of",
)  # fmt: skip
NEAR = 0.012
"""Of a number with three digits: what rounding, and products in another number format, may make of it."""


@dataclass(frozen=True)
class Student:
    """What one student asks for.

    Attributes:
        ranges: blocks of the range changes, in turn.
        prompt: what is continued.
    """

    ranges: tuple[str, ...]
    prompt: str


@dataclass
class Expected:
    """The single-user results: a line of numbers by range, the lesson's among them, and texts by student."""

    lesson: str
    lines: dict[str, str]
    texts: dict[int, list[str]]


@dataclass
class Seen:
    """What the students saw.

    Attributes:
        seconds: by kind of request, one entry each.
        wrong: answers that differ from the single-user result, one sentence each.
        lost: requests that no answer came to.
        errors: requests that were refused.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def p95(self, kind: str) -> float | None:
        """Return the 95th percentile of a kind's seconds."""
        times = sorted(self.seconds.get(kind, ()))
        return times[min(len(times) - 1, int(0.95 * len(times)))] if times else None


def measure(
    experiment: Experiment, on_event: Callable[[Any], None], students: int = 30, minutes: float = 3.0
) -> dict[str, Any]:
    """Let a class use the page.

    Args:
        experiment: its model, tokens and window are the lesson's.
        on_event: receives progress.
        students: how many.
        minutes: for how long they begin something new.

    Returns:
        ``ratio``, ``spread``, ``wrong``, ``lost``, ``errors``, ``p95_cached_s``, ``p95_range_change_s``,
        ``memory_growth_mb``, and how many requests of each kind there were.

    Raises:
        ResourceError: the page does not come up, or the lesson fails.
    """
    lesson = replace(experiment, remove="12-16", methods=METHODS, prompt=PROMPTS[0], max_new_tokens=NEW_TOKENS)
    lesson = replace(lesson, windows=8)
    from ghosted import models

    plans = plan(students, models.describe(lesson.model).blocks)
    expected = alone(lesson, plans, on_event)
    with served() as (address, process):
        import psutil

        server, site = psutil.Process(process.pid), Site(address)
        on_event(Progress("the first student", 0, 1))
        first = Seen()
        page = Visitor(site, query_of(lesson))
        press_run(page, lesson, expected, first)
        page.call("prepare")
        if first.wrong or first.lost or first.errors:
            said = [*first.errors, *first.lost, *first.wrong][0]
            raise ResourceError(f"The lesson's run failed before the class came ({said[:200]}).")
        before = memory(server)
        seen = drive(site, lesson, plans, expected, 60 * minutes, on_event)
        growth = (memory(server) - before) / 1e6
    return figures(seen) | {"memory_growth_mb": growth, "memory_after_first_mb": before / 1e6, "students": students,
                            "minutes": minutes, "first_run_s": first.seconds["run"][0]}  # fmt: skip


def figures(seen: Seen) -> dict[str, Any]:
    """Return what a bench figure holds."""
    changes = sorted(seen.seconds.get("range_change", [0.0]))
    slowest = seen.p95("range_change") or 0.0
    return {
        "ratio": slowest / TARGET_S, "spread": [statistics.median(changes) / TARGET_S, changes[-1] / TARGET_S],
        "wrong": len(seen.wrong), "lost": len(seen.lost), "errors": len(seen.errors),
        "p95_cached_s": seen.p95("cached"), "p95_range_change_s": slowest, "p95_run_s": seen.p95("run"),
        "p95_generation_s": seen.p95("generation"),
        **{f"{kind}s": len(times) for kind, times in sorted(seen.seconds.items())},
        "examples": [*seen.wrong[:3], *seen.lost[:3], *seen.errors[:3]],
    }


def plan(students: int, blocks: int) -> list[Student]:
    """Return what each student asks for: four ranges of its own, and a prompt."""
    spans = [(start, length) for length in (3, 5, 4, 6, 2, 7) for start in range(2, blocks - 3 - length)]
    plans = []
    for number in range(students):
        own = [spans[(4 * number + step) % len(spans)] for step in range(4)]
        ranges = tuple(f"{start}-{start + length - 1}" for start, length in own)
        plans.append(Student(ranges, f"{PROMPTS[number % len(PROMPTS)]} ({number + 1})"))
    return plans


def alone(lesson: Experiment, plans: Sequence[Student], on_event: Callable[[Any], None]) -> Expected:
    """Compute every answer with the library, one after the other, in this process."""
    from ghosted.run import Workspace, run

    workspace = Workspace(keeps_states=True)
    whole = drain(run(lesson, workspace), on_event)
    lines = {lesson.remove: left_line(Record.of(whole))}
    ranges = sorted({each for student in plans for each in student.ranges} - {lesson.remove})
    stage = Stage("answers of one user alone", len(ranges) + len(plans))
    preview = workspace.preview(lesson)
    for blocks in ranges:
        found = preview.quick(RemovedBlocks.parse(blocks), lesson.methods)
        lines[blocks] = left_line(Record.of(found))
        on_event(stage.step())
    texts = {}
    for number, student in enumerate(plans):
        columns = drain(run(writing(lesson, student), workspace, parts=("columns",))).columns
        texts[number] = [column.text for column in columns]
        on_event(stage.step())
    return Expected(lines[lesson.remove], lines, texts)


def writing(lesson: Experiment, student: Student, seed: int = 0) -> Experiment:
    """Return what the page's endpoint ``generate`` makes of a student's request."""
    return Experiment(model=lesson.model, text=lesson.text, tokens=lesson.tokens, remove=student.ranges[0],
                      methods=("ghosted",), prompt=student.prompt, max_new_tokens=NEW_TOKENS, seed=seed)  # fmt: skip


def drive(
    site: Site, lesson: Experiment, plans: Sequence[Student], expected: Expected, seconds: float,
    on_event: Callable[[Any], None], every: tuple[float, float, float] = (CHANGE_EVERY, OPEN_EVERY, WRITE_EVERY),
) -> Seen:
    """Let all students work for some seconds, and wait until each has all its answers.

    Args:
        site: the page.
        lesson: the lesson's run.
        plans: the students.
        expected: the single-user results.
        seconds: for how long they begin something new.
        on_event: receives progress.
        every: seconds between range changes, between openings, between generations.
    """
    seen, start = Seen(), time.monotonic()
    threads = []
    for number, student in enumerate(plans):
        page, phase = Visitor(site, query_of(lesson)), number / len(plans)
        steps = [
            lambda page=page, student=student, phase=phase: _look(
                page, lesson, student, phase, expected, seen, start, seconds, every),
            lambda number=number: _write(site, lesson, plans, number, expected, seen, start, seconds, every[2]),
        ]
        threads += [threading.Thread(target=step, daemon=True) for step in steps]
    for thread in threads:
        thread.start()
    while (waiting := sum(thread.is_alive() for thread in threads)) and time.monotonic() < start + seconds + PATIENCE:
        time.sleep(0.5)
        done = min(time.monotonic() - start, seconds)
        left = "the class works" if done < seconds else f"{waiting} students wait for their last answers"
        on_event(Progress(left, round(done), round(seconds), max(0.0, seconds - done)))
    seen.lost += ["a student never had the last answer"] * waiting
    return seen


def press_run(page: Visitor, lesson: Experiment, expected: Expected, seen: Seen) -> None:
    """Open the lesson's link, press Run, follow the run to its end and look at its numbers."""
    def run() -> None:
        page.call("open")
        page.call("start", _inputs(lesson), PATIENCE)
        page.call("follow", [], PATIENCE)
        drawn = page.call("draw_boundary", [], PATIENCE)
        page.call("finish", [], PATIENCE)
        _compare(drawn.get(page.site.ids["gl-left"]), expected.lesson, "the lesson", seen)

    _timed("run", run, seen)


def _look(page: Visitor, lesson: Experiment, student: Student, phase: float, expected: Expected, seen: Seen,
          start: float, seconds: float, every: tuple[float, float, float]) -> None:  # fmt: skip
    page.arrive()
    press_run(page, lesson, expected, seen)
    late = phase * every[0]  # a class does not move in step
    change, reopen, turn = start + late + every[0], start + late + every[1], 0
    following: list[threading.Thread] = []
    while min(change, reopen) < start + seconds:
        _sleep_until(min(change, reopen))
        if reopen <= change:
            _timed("cached", lambda: _open(page, expected, seen), seen)
            reopen += every[1]
            continue
        blocks = student.ranges[turn % len(student.ranges)]
        _timed("range_change", lambda blocks=blocks: _change(page, lesson, blocks, expected, seen), seen)
        pictures = threading.Thread(
            target=_timed, args=("picture", lambda blocks=blocks: _pictures(page, lesson, blocks), seen), daemon=True
        )
        pictures.start()  # nobody waits for these before they change the range again
        following.append(pictures)
        change, turn = change + every[0], turn + 1
    for pictures in following:
        pictures.join()
    page.leave()


def _open(page: Visitor, expected: Expected, seen: Seen) -> None:
    """Open the lesson's link in a new tab: its run is finished, so all of it is there."""
    tab = Visitor(page.site, page.query)
    tab.arrive()
    try:
        _compare(tab.call("open").get(page.site.ids["gl-left"]), expected.lesson, "the lesson, opened", seen)
    finally:
        tab.leave()


def _change(page: Visitor, lesson: Experiment, blocks: str, expected: Expected, seen: Seen) -> None:
    shown = page.call("quick", _inputs(replace(lesson, remove=blocks)))
    _compare(shown.get(page.site.ids["gl-left"]), expected.lines[blocks], f"blocks {blocks}", seen)


def _pictures(page: Visitor, lesson: Experiment, blocks: str) -> None:
    page.call("bars")
    page.call("rest", _inputs(replace(lesson, remove=blocks)), PATIENCE)
    page.call("prepare")


def _write(site: Site, lesson: Experiment, plans: Sequence[Student], number: int, expected: Expected, seen: Seen,
           start: float, seconds: float, every: float) -> None:  # fmt: skip
    turn = 1
    while start + turn * every <= start + seconds:
        _sleep_until(start + turn * every - every * (1 - number / len(plans)) / 2)
        asked = writing(lesson, plans[number], seed=turn)

        def generate(asked: Experiment = asked) -> None:
            page = Visitor(site)
            values = [asked.prompt, asked.remove, "manual", 0, ",".join(asked.methods), asked.model, asked.text,
                      asked.tokens, asked.max_new_tokens, 0.0, asked.seed]  # fmt: skip
            answer = page.call("generate", values, PATIENCE)
            found = next(iter(answer.values() if isinstance(answer, dict) else answer))
            texts = [column["text"] for column in found["columns"]]
            if texts != expected.texts[number]:
                seen.wrong.append(f"student {number + 1} reads {texts!r:.200}, not {expected.texts[number]!r:.200}")

        _timed("generation", generate, seen)
        turn += 1


def _inputs(experiment: Experiment) -> list[Any]:
    values = values_of(experiment)
    return [values[name] for name in FIELDS]


def _timed(kind: str, work: Callable[[], None], seen: Seen) -> None:
    begin = time.monotonic()
    try:
        work()
        seen.seconds.setdefault(kind, []).append(time.monotonic() - begin)
    except TimeoutError as error:
        seen.lost.append(f"{kind}: {error}")
    except (Refused, OSError, LookupError, ValueError) as error:
        seen.errors.append(f"{kind}: {type(error).__name__} {error}"[:300])


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def _compare(shown: Any, expected: str, what: str, seen: Seen) -> None:
    if not isinstance(shown, str) or not same_numbers(shown, expected):
        seen.wrong.append(f"{what}: {_plain(str(shown))[:150]}, not {_plain(expected)[:150]}")


def same_numbers(shown: str, expected: str) -> bool:
    """Return whether two lines of :func:`analysis.tables.left_line` say the same of the methods that both name.

    The line before its last methods are known says less; one that names none, or other blocks, is not the same.
    """
    ours, theirs = _numbers(shown), _numbers(expected)
    common = ours.keys() & theirs.keys()
    blocks = [re.search(r"data-removed='([^']*)'", line) for line in (shown, expected)]
    if not common or None in blocks or blocks[0][1] != blocks[1][1]:
        return False
    return all(abs(a - b) <= NEAR * max(abs(a), abs(b))
               for name in common for a, b in zip(ours[name], theirs[name], strict=False))  # fmt: skip


def _numbers(line: str) -> dict[str, list[float]]:
    each = re.findall(r"<i class='gl-swatch'></i>(.*?) <b>([^<]*)</b>(?:, A ([0-9.,]+) % of W)?</span>", line)
    return {name: [float(text.replace(",", "")) for text in (left, share) if re.fullmatch(r"[0-9.,e+-]+", text)]
            for name, left, share in each}  # fmt: skip


def _plain(html: str) -> str:
    return re.sub(r"<[^>]*>", "", html)


def memory(server: Any) -> int:
    """Return the bytes of memory that a process and its children hold."""
    return sum(each.memory_info().rss for each in (server, *server.children(recursive=True)))
