"""A small stand-in for the Hub on this machine: its answers in its own layout, for tests without a network."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Repositories by id, each a folder; ``asked`` lists the paths that were requested."""

    def __init__(self):
        self.folders: dict[str, Path] = {}
        self.gated: set[str] = set()
        self.asked: list[str] = []
        self.delay = threading.Event()
        self.hang = False

    def answer(self, path: str):
        """Return (status, headers, body) for a path."""
        self.asked.append(path)
        if self.hang:
            self.delay.wait(30)
        if path.startswith("/api/models/"):
            repo, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            return self.info(repo, unquote(revision) or "main")
        repo, _, rest = path.strip("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        return self.file(repo, unquote(revision), unquote(name))

    def info(self, repo, revision):
        if repo not in self.folders:
            return 401, {"X-Error-Code": "RepoNotFound"}, b'{"error": "Repository not found"}'
        if revision not in ("main", COMMIT):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b'{"error": "Invalid rev id"}'
        files = [
            {"rfilename": p.name, "size": p.stat().st_size, "blobId": "0"} for p in sorted(self.folders[repo].iterdir())
        ]
        body = {"id": repo, "modelId": repo, "sha": COMMIT, "siblings": files, "private": False,
                "gated": "manual" if repo in self.gated else False, "tags": [], "downloads": 0, "likes": 0}
        return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()

    def file(self, repo, revision, name):
        if repo in self.gated:
            return 403, {"X-Error-Code": "GatedRepo"}, b'{"error": "gated"}'
        path = self.folders.get(repo, Path("missing")) / name
        if not path.is_file():
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        data = path.read_bytes()
        return 200, {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": COMMIT}, data


@contextmanager
def serving():
    """Run a :class:`Hub` on a free port and give it with its address."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            status, headers, body = hub.answer(self.path.partition("?")[0])
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        hub.delay.set()
        server.shutdown()
        server.server_close()
