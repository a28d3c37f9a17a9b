"""What is done beside the page's run, on a button of its own? One job per panel: watched, stopped, shown at its end.

A panel with such a job has a ``line`` that says where it is, a button ``go`` and a button ``stop``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any

import gradio as gr

from analysis.job import Ended
from analysis.panels import parts
from analysis.panels.status import event_line, line
from analysis.speech import say
from ghosted.errors import GhostedError


class Beside(ABC):
    """The handlers of such a panel, bound to the page's live part.

    Args:
        panel: its components.
        live: the page's live part.
        name: visitor to the name under which this panel's job waits.
    """

    def __init__(self, panel: Any, live: Any, name: Callable[[str], str]) -> None:
        self.panel, self.live, self.name = panel, live, name

    def wire(self, inputs: list[gr.Component], results: list[gr.Component]) -> None:
        """Wire the two buttons.

        Args:
            inputs: what :meth:`asked` is given.
            results: what :meth:`shown` changes, beside the line and the buttons.
        """
        panel = self.panel
        changed = [panel.line, panel.go, panel.stop, *results]
        started = panel.go.click(self.start, inputs, changed, **parts.PRIVATE)
        started.then(self.follow, None, changed, **parts.WATCHING)
        panel.stop.click(self.end, None, [panel.line], **parts.PRIVATE)

    @abstractmethod
    def asked(self, request: gr.Request, *values: Any) -> Any:
        """Return the request that the components say.

        Raises:
            GhostedError: it makes no sense.
        """

    @abstractmethod
    def shown(self, result: Any) -> dict[Any, Any]:
        """Return the updates that show what came out."""

    def running(self, request: gr.Request) -> bool:
        """Return whether this panel's job waits or runs."""
        return self.live.runner.running(self.name(request.session_hash))

    def start(self, request: gr.Request, *values: Any) -> dict[Any, Any]:
        """Queue what was asked for."""
        try:
            self.live.runner.submit(self.name(request.session_hash), self.asked(request, *values))
        except GhostedError as error:
            return {self.panel.line: line(str(error), "failed")}
        return self.buttons(running=True)

    async def follow(self, request: gr.Request) -> AsyncIterator[dict[Any, Any]]:
        """Pass on where the job is, and at its end what came out."""
        yield {self.panel.line: gr.skip()}  # gradio empties the outputs of a generator that yields nothing
        visitor, runner = self.name(request.session_hash), self.live.runner
        if (job := runner.claim(visitor, "beside")) is None:
            return
        async for event in runner.follow(job, visitor):
            if not isinstance(event, Ended):
                yield {self.panel.line: event_line(event)}
                continue
            shown = self.buttons(running=False) | {self.panel.line: line(event.said, event.how)}
            yield shown | (self.shown(event.run) if event.run is not None else {})

    def end(self, request: gr.Request) -> Any:
        """Ask the job to stop."""
        stopping = self.live.runner.stop(self.name(request.session_hash))
        return line(say("status.stopping"), "busy", 0) if stopping else gr.skip()

    def buttons(self, running: bool) -> dict[Any, Any]:
        """Return the updates of the two buttons."""
        return {self.panel.go: gr.Button(interactive=not running), self.panel.stop: gr.Button(interactive=running)}
