"""The page's handlers for what leaves it as a file and comes back as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr
from gradio.processing_utils import save_bytes_to_cache

from analysis.export import settings_file
from analysis.export.pictures import pictures_of
from analysis.live import Live
from analysis.opening import Opening
from analysis.panels import parts, share, status
from analysis.panels.runs import listed
from analysis.portable import file_name, hashes
from analysis.session import Session
from analysis.speech import say, speaking
from ghosted.errors import GhostedError


class Sharing:
    """The handlers, bound to the page's live part and to its opening."""

    def __init__(self, live: Live, opening: Opening) -> None:
        self.live, self.opening, self.panel = live, opening, live.layout.share

    def exporting(self, name: str) -> Callable[[gr.Request], dict[Any, Any]]:
        """Return the handler that writes what this visitor sees in one format, into gradio's own cache."""

        def write_file(request: gr.Request) -> dict[Any, Any]:
            record = self.live.record(request)
            if record is None:
                return {self.panel.file: None, self.panel.shown: parts.problem(say("share.invitation"))}
            form = share.FORMATS[name]
            with speaking("en"):
                pictures = pictures_of(self.live.show(record, Session()))
                data = form.write(record, pictures, self._texts(request))
            path = save_bytes_to_cache(data, file_name(record.run) + form.SUFFIX, self.panel.file.GRADIO_CACHE)
            method = self.live.sessions.of(request.session_hash).takes
            return {self.panel.file: path} | share.show(self.panel, record, method)

        return write_file

    def imported(self, path: str, request: gr.Request) -> dict[Any, Any]:
        """Show an imported run with its settings, or set the controls to imported settings; nothing is computed."""
        session = self.live.sessions.of(request.session_hash)
        try:
            found = settings_file.read(path, self._texts(request))
            self.live.allow(found.experiment, request.session_hash)
        except GhostedError as error:
            return {self.panel.shown: parts.problem(str(error))}
        if found.record is not None:
            session.keep(found.record)
            shown = self.opening.reopen(found.record, request) | listed(self.live.layout.runs, session)
        else:
            said = say("page.imported")
            shown = self.opening.settings(found.experiment, session.shown)
            shown[self.live.layout.status.line] = status.line(said)
            if found.said:
                shown[self.panel.shown] = share.note(found.said)
            if found.said and found.notices:
                shown[self.panel.shown] += parts.problem(" ".join(found.notices))
                return shown
        return shown | ({self.panel.shown: parts.problem(" ".join(found.notices))} if found.notices else {})

    def _texts(self, request: gr.Request) -> dict[str, str]:
        return hashes(self.live.sessions.of(request.session_hash).uploads)

