"""What can be asked of the page by HTTP? Exactly these functions, with names, types and docs; each is one job in line.

A call waits behind the runs of the page and shares the result of an equal one. An error is the sentence that the page
would show.
"""

import asyncio
import functools
import inspect
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr

from analysis.taking import Wanted
from ghosted.errors import GhostedError, InputError
from ghosted.experiment import Experiment
from ghosted.flags import names
from ghosted.formats import check_removes
from ghosted.results import Run
from ghosted.run import compare_json

LONGEST_SPECTRUM = 4096
"""Numbers of each spectrum in an answer at most."""

_TYPES = {str: (str, "a text"), int: (int, "a whole number"), float: ((int, float), "a number")}
"""What JSON an argument may be, by its annotation, and what that is called."""


@dataclass(frozen=True)
class Only:
    """A run of some parts only (:data:`ghosted.results.PARTS`), equal to every other of the same kind."""

    experiment: Experiment
    parts: tuple[str, ...]


class Endpoints:
    """The functions, bound to the page's live part."""

    def __init__(self, live: Any) -> None:
        self._live = live

    def place(self) -> None:
        """Add every endpoint to the page that is being built."""
        for endpoint in (self.choose, self.compare, self.generate, self.similarity, self.decompose, self.export):
            gr.api(_typed(endpoint), api_name=endpoint.__name__, concurrency_limit=self._live.limits.sessions)

    async def choose(
        self, criterion: str = "cosine", count: int = 5, model: str = "smollm2-135m", text: str = "python-docs",
        tokens: int = 16384, window: int = 512,
    ) -> dict:
        """Let a criterion choose the blocks to remove: the choice, its runner-up, and all candidates with scores."""
        if criterion == "manual":
            raise gr.Error("The criterion manual chooses nothing; take cosine.", print_exception=False)
        run = await self._run((), model=model, text=text, tokens=tokens, window=window, criterion=criterion,
                              count=count, methods="none")
        return run.choice.to_json()

    async def compare(
        self, remove: str = "", criterion: str = "manual", count: int = 0,
        methods: str = "none,linearpatch,replaceme,ghosted", model: str = "smollm2-135m", text: str = "python-docs",
        tokens: int = 16384, window: int = 512, windows: int = 8, ridge: str = "1e-6",
    ) -> dict:
        """Compare repairs of the same gap: boundary error, perplexity, damage, downstream error, protocol."""
        run = await self._run(("boundary", "scores"), model=model, text=text, tokens=tokens, window=window,
                              remove=remove, criterion=criterion, count=count, methods=methods, windows=windows,
                              ridge=ridge)
        return compare_json(run)

    async def generate(
        self, prompt: str, remove: str = "", criterion: str = "manual", count: int = 0,
        methods: str = "none,ghosted", model: str = "smollm2-135m", text: str = "python-docs", tokens: int = 16384,
        max_new_tokens: int = 64, temperature: float = 0.0, seed: int = 0,
    ) -> dict:
        """Continue a prompt with the original, the pruned and the repaired models, side by side."""
        if not prompt.strip():
            raise gr.Error("Give the text to continue.", print_exception=False)
        run = await self._run(("columns",), model=model, text=text, tokens=tokens, remove=remove, criterion=criterion,
                              count=count, methods=methods, prompt=prompt, max_new_tokens=max_new_tokens,
                              temperature=temperature, seed=seed)
        return {"columns": [column.to_json() for column in run.columns], "warnings": run.warnings}

    async def similarity(
        self, model: str = "smollm2-135m", text: str = "python-docs", tokens: int = 16384, window: int = 512
    ) -> dict:
        """Return the mean per-token cosine of all pairs of states, and each block's influence."""
        run = await self._run((), model=model, text=text, tokens=tokens, window=window, methods="none")
        found = run.similarity
        return {"cosine": found.cosine.round(6).tolist(), "block_influence": found.block_influence.round(6).tolist(),
                "tokens": found.tokens}

    async def decompose(
        self, remove: str, methods: str = "ghosted", model: str = "smollm2-135m", text: str = "python-docs",
        tokens: int = 16384, window: int = 512, ridge: str = "1e-6",
    ) -> dict:
        """Decompose each method's operator W = S + A: shares, spectra, and what smaller families contain of it."""
        run = await self._run(("decomposition",), model=model, text=text, tokens=tokens, window=window, remove=remove,
                              methods=methods, ridge=ridge)
        return {"operators": {name: _operator(each) for name, each in run.decompositions.items()},
                "warnings": run.warnings}

    async def export(
        self, request: gr.Request, remove: str = "", criterion: str = "manual", count: int = 0,
        method: str = "ghosted", format: str = "adapter", model: str = "smollm2-135m", text: str = "python-docs",
        tokens: int = 16384, window: int = 512, windows: int = 8, ridge: str = "1e-6",
    ) -> gr.FileData:
        """Export a repaired model as adapter, checkpoint, merged or mergekit: a zip, read again before it is given."""
        taken = await self._done(
            lambda experiment: Wanted(experiment, format), self._outlook, model=model, text=text, tokens=tokens,
            window=window, remove=remove, criterion=criterion, count=count, methods=method, windows=windows,
            ridge=ridge,
        )
        self._live.sessions.of(request.session_hash).taken.append(taken)  # until it was fetched
        return gr.FileData(path=str(taken.path), orig_name=taken.path.name, size=taken.bytes).model_dump()

    def _outlook(self, wanted: Wanted) -> str:
        check_removes(wanted.experiment.remove, wanted.experiment.criterion)
        return self._live.outlook(wanted)

    async def _run(self, parts: tuple[str, ...], **settings: Any) -> Run:
        return await self._done(lambda experiment: Only(experiment, parts), **settings)

    async def _done(
        self, asked: Callable[[Experiment], Any], check: Callable[[Any], Any] = bool, **settings: Any
    ) -> Any:
        """Return what the request that ``asked`` makes of the settings gives; ``check`` refuses it before."""
        live, visitor = self._live, f"api {uuid.uuid4()}"
        try:
            experiment = _experiment(settings)
            live.allow(experiment, "")
            request = asked(experiment)
            await asyncio.to_thread(check, request)
            job = live.runner.submit(visitor, request)
        except GhostedError as error:
            raise gr.Error(str(error), print_exception=False) from error
        try:
            ended = await live.runner.end(job, visitor)
        finally:  # a client that has hung up must not leave its job behind
            live.runner.forget(visitor)
        if ended.run is None:
            raise gr.Error(ended.said, print_exception=False)
        return ended.run


def _typed(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Return an endpoint that refuses values of another JSON type than its own, by one sentence; gradio passes any."""
    parameters = inspect.signature(endpoint).parameters

    @functools.wraps(endpoint)
    async def checked(*args: Any, **more: Any) -> Any:
        for name, value in (*zip(parameters, args, strict=False), *more.items()):
            kinds, what = _TYPES.get(parameters[name].annotation, (object, ""))
            kinds = (str, int, float) if name == "ridge" else kinds
            if what and (isinstance(value, bool) or not isinstance(value, kinds)):
                raise gr.Error(f"{name} must be {what}, not {json.dumps(value)[:40]}.", print_exception=False)
        return await endpoint(*args, **more)

    return checked


def _experiment(settings: dict[str, Any]) -> Experiment:
    """Build the experiment from plain values.

    Raises:
        InputError: a value that makes no sense.
    """
    given = dict(settings) | {"methods": tuple(names(settings["methods"]))}
    if not given["methods"]:
        raise InputError("Name at least one method, such as ghosted.")
    if given.get("remove") and given.get("criterion", "manual") != "manual":
        raise InputError("Give either remove or a criterion with a count, not both.")
    if "ridge" in given and given["ridge"] != "auto":
        try:
            given["ridge"] = float(given["ridge"])
        except ValueError:
            raise InputError(f"ridge must be auto or a number such as 1e-6, not {given['ridge'][:40]!r}.") from None
    return Experiment(**given)


def _operator(found: Any) -> dict[str, Any]:
    plane = found.eigenvalues[:LONGEST_SPECTRUM]
    return {
        "gap": found.gap, "share_antisymmetric": found.share_antisymmetric,
        "share_antisymmetric_M": found.share_antisymmetric_M, "contained": found.contained,
        "eigenvalues": [[float(z.real), float(z.imag)] for z in plane],
        "eigenvalues_symmetric": found.eigenvalues_symmetric[:LONGEST_SPECTRUM].tolist(),
        "rotations": found.rotations[:LONGEST_SPECTRUM].tolist(),
        "singular_values": found.singular_values[:LONGEST_SPECTRUM].tolist(), "precision": found.precision,
    }
