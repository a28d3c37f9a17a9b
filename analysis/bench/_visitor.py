"""How does a program use the page as a browser does? The same events over HTTP, without drawing anything.

A browser sends each event of the page to gradio's queue and reads all answers of its page from one stream; this does
the same, so that the page's own handlers run. Events are called by their handler's name. What arrives is parsed only
as far as somebody asked for it: thirty visitors must not cost more than the server that is measured.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import threading
import time
from typing import Any
from urllib.parse import urlsplit

API = "/gradio_api"


class Refused(Exception):
    """The server did not do what it was asked; the message says what it answered."""


class Site:
    """A page's address and its events.

    Args:
        address: of the page, with its port.
        cookie: what a login gave.

    Attributes:
        events: number of an event by its handler's name; of several, the first.
        outputs: numbers of the components that an event changes, by its number.
        direct: numbers of the events that are answered at once, without the queue.
        ids: numbers of components by their ``elem_id``.
    """

    def __init__(self, address: str, cookie: str = "") -> None:
        parts = urlsplit(address)
        self.host, self.port = parts.hostname, parts.port
        self.headers = {"Cookie": cookie} if cookie else {}
        config = json.loads(self.get("/config"))
        self.events, self.outputs, self.direct = {}, {}, set()
        for event in config["dependencies"]:
            self.outputs[event["id"]] = event["outputs"]
            if event["queue"] is False:
                self.direct.add(event["id"])
            if isinstance(event["api_name"], str):
                self.events.setdefault(event["api_name"], event["id"])
        self.ids = {each["props"]["elem_id"]: each["id"] for each in config["components"]
                    if each["props"].get("elem_id")}  # fmt: skip

    def connect(self, patience: float = 120.0) -> http.client.HTTPConnection:
        """Return a connection of its own."""
        return http.client.HTTPConnection(self.host, self.port, timeout=patience)

    def get(self, path: str) -> bytes:
        """Return what is at a path.

        Raises:
            Refused: the status is not 200.
        """
        return self._answer("GET", path, None)

    def post(self, path: str, body: Any, patience: float = 120.0) -> bytes:
        """Send JSON and return the answer.

        Raises:
            Refused: the status is not 200.
            TimeoutError: no answer came within ``patience`` seconds.
        """
        return self._answer("POST", path, body, patience)

    def _answer(self, method: str, path: str, body: Any, patience: float = 120.0) -> bytes:
        connection = self.connect(patience)
        headers = self.headers | {"Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise Refused(f"{method} {path.partition('?')[0]}: {answer.status} {data[:200].decode(errors='replace')}")
        return data


class Visitor:
    """One open page.

    Args:
        site: the page.
        query: what stands behind the question mark of its address.
    """

    def __init__(self, site: Site, query: str = "") -> None:
        self.site, self.query, self.session = site, query, secrets.token_hex(6)
        self._change = threading.Condition()
        self._pending: set[str] = set()
        self._done: dict[str, bytes] = {}
        self._reading = False
        self._alive: http.client.HTTPConnection | None = None

    def arrive(self) -> None:
        """Open the connection by which the server knows that the page is open."""
        self._alive = self.site.connect()
        self._alive.request("GET", f"{API}/heartbeat/{self.session}", headers=self.site.headers)
        self._alive.getresponse().readline()

    def leave(self) -> None:
        """Close the page."""
        if self._alive is not None:
            with contextlib.suppress(OSError):
                if self._alive.sock is not None:
                    self._alive.sock.close()
                self._alive.close()
            self._alive = None

    def call(
        self, name: str, data: list[Any] | None = None, patience: float = 120.0, event: Any = None
    ) -> dict[int, Any] | list[Any]:
        """Set off an event of the page and return what it changes, by component; a value that stays is left out.

        Args:
            name: the handler's name.
            data: values of its inputs.
            patience: seconds until the answer counts as lost.
            event: what comes with the event itself, such as the panels in sight.

        Raises:
            Refused: the handler failed, or the server does not take the event.
            TimeoutError: no answer came.
        """
        number = self.site.events[name]
        body = {"data": data or [], "fn_index": number, "session_hash": self.session, "event_data": event,
                "trigger_id": None}  # fmt: skip
        query = f"?{self.query}" if self.query else ""
        if number in self.site.direct:
            answer = json.loads(self.site.post(f"{API}/run/predict{query}", body, patience))
            return self._changed(number, answer["data"])
        answer = json.loads(self.site.post(f"{API}/queue/join{query}", body))
        return self._taken(answer["event_id"], number, patience)

    def _taken(self, event: str, number: int, patience: float) -> dict[int, Any] | list[Any]:
        until = time.monotonic() + patience
        with self._change:
            self._pending.add(event)
            if not self._reading:
                self._reading = True
                threading.Thread(target=self._read, daemon=True).start()
            while event not in self._done:
                if not self._change.wait(until - time.monotonic()):
                    self._pending.discard(event)
                    raise TimeoutError(f"no answer within {patience:.0f} s")
            message = json.loads(self._done.pop(event))
            self._pending.discard(event)
        if not message["success"]:
            raise Refused(str((message.get("output") or {}).get("error"))[:300])
        return self._changed(number, message["output"]["data"])

    def _changed(self, number: int, values: list[Any]) -> dict[int, Any] | list[Any]:
        outputs = self.site.outputs[number]
        if len(outputs) != len(values):
            return values
        return {part: value for part, value in zip(outputs, values, strict=True) if not _stays(value)}

    def _read(self) -> None:
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._read_stream()
            with self._change:
                if not self._pending - self._done.keys():
                    self._reading = False
                    return
            time.sleep(0.02)

    def _read_stream(self) -> None:
        connection = self.site.connect(60.0)
        try:
            connection.request("GET", f"{API}/queue/data?session_hash={self.session}", headers=self.site.headers)
            stream = connection.getresponse()
            if stream.status != 200:
                return
            while line := stream.readline():
                if b'"process_completed"' not in line[:60]:
                    if b'"close_stream"' in line[:60]:
                        return
                    continue
                event = _event_of(line)
                with self._change:
                    if event is not None:
                        self._done[event] = line.removeprefix(b"data: ")
                        self._change.notify_all()
        finally:
            connection.close()


def _event_of(line: bytes) -> str | None:
    """Return the event's id without parsing all of the message: it is its last or its second entry."""
    start = line.find(b'"event_id":"')
    if start < 0:
        return None
    start += len(b'"event_id":"')
    return line[start: line.index(b'"', start)].decode()


def _stays(value: Any) -> bool:
    return isinstance(value, dict) and value.get("__type__") == "update" and value.keys() <= {"__type__", "props"}
