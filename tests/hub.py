"""A small stand-in for the Hub on this machine: its answers in its own layout, for tests without a network."""

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Repositories by id, each a folder; ``asked`` lists the paths that were requested, ``tokens`` what came with them.

    Whatever belongs to a repository in ``failing`` is answered with its status alone.

    Datasets are under ``datasets/owner/name``, and by branch, where they have several, ``datasets/owner/name@branch``.
    Where ``writable`` is a folder, everybody with a token may make repositories in it and upload.
    """

    def __init__(self):
        self.folders: dict[str, Path] = {}
        self.gated: set[str] = set()
        self.asked: list[str] = []
        self.tokens: list[str] = []
        self.failing: dict[str, int] = {}
        self.delay = threading.Event()
        self.hang = False
        self.writable: Path | None = None
        self.uploaded: dict[str, bytes] = {}

    def answer(self, path: str, body: bytes = b""):
        """Return (status, headers, body) for a path, and what was posted to it."""
        self.asked.append(path)
        if self.hang:
            self.delay.wait(30)
        for repo, status in self.failing.items():
            if f"/{repo}" in path:
                return status, {}, b'{"error": "no"}'
        if path.startswith("/api/datasets/"):
            return self.dataset(unquote(path.removeprefix("/api/datasets/")), body)
        if path.startswith("/datasets/"):
            repo, _, rest = unquote(path.strip("/")).partition("/resolve/")
            branch = next((b for b in self.branches(repo) if rest.startswith(f"{b}/")), COMMIT)
            return self.file(self.branch(repo, branch), COMMIT, rest.removeprefix(f"{branch}/"))
        if path.startswith("/api/models/"):
            repo, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            return self.info(repo, unquote(revision) or "main")
        repo, _, rest = path.strip("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        return self.file(repo, unquote(revision), unquote(name))

    def branches(self, repo):
        return [key.partition("@")[2] or "main" for key in self.folders if key.partition("@")[0] == repo]

    def branch(self, repo, revision):
        """The folder's key; a commit is that of the only branch."""
        named = f"{repo}@{revision}"
        return named if named in self.folders else next((k for k in self.folders if k.partition("@")[0] == repo), repo)

    def dataset(self, path, body):
        repo, rest = "/".join(path.split("/")[:2]), "/".join(path.split("/")[2:])
        kind, _, rest = rest.partition("/")
        branches = self.branches(f"datasets/{repo}")
        if not branches:
            return 401, {"X-Error-Code": "RepoNotFound"}, b'{"error": "Repository not found"}'
        revision = next((b for b in (*branches, COMMIT) if rest == b or rest.startswith(f"{b}/")), None)
        if rest and revision is None:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b'{"error": "Invalid rev id"}'
        folder = self.folders[self.branch(f"datasets/{repo}", revision or branches[0])]
        under = rest.removeprefix(revision or "").strip("/")
        files = [{"type": "file", "path": p.relative_to(folder).as_posix(), "size": p.stat().st_size, "oid": "0" * 40}
                 for p in sorted(folder.rglob("*")) if p.is_file()]  # fmt: skip
        folders = {f["path"].rpartition("/")[0] for f in files} - {""}
        folders |= {"/".join(f.split("/")[:i]) for f in folders for i in range(1, f.count("/") + 1)}
        entries = files + [{"type": "directory", "path": f, "oid": "0" * 40} for f in sorted(folders)]
        if kind == "tree":
            if under and under not in folders:
                return 404, {"X-Error-Code": "EntryNotFound"}, b'{"error": "not found"}'
            found = [e for e in entries if not under or e["path"].startswith(f"{under}/")]
        elif kind == "paths-info":
            given = body.decode()
            asked = json.loads(given)["paths"] if given.startswith("{") else parse_qs(given).get("paths", [])
            found = [e for e in entries if e["path"] in asked]
        else:
            found = {"id": repo, "sha": COMMIT, "private": False, "gated": False, "tags": [], "downloads": 0,
                     "likes": 0, "siblings": [{"rfilename": f["path"]} for f in files]}  # fmt: skip
        return 200, {"Content-Type": "application/json"}, json.dumps(found).encode()

    def take(self, path: str, body: bytes, address: str):
        """Answer a request that writes, as ``huggingface_hub`` sends them: files beside weights ride in the commit."""
        self.asked.append(path)
        if path.startswith("/lfs/"):
            self.uploaded[path.removeprefix("/lfs/")] = body
            return 200, {}, b""
        if path == "/api/validate-yaml":
            return self.json({"errors": [], "warnings": []})
        if self.writable is None:
            return 403, {}, b'{"error": "forbidden"}'
        if path == "/api/repos/create":
            about = json.loads(body)
            repo = "/".join(filter(None, (about.get("organization"), about["name"])))
            self.folders[repo] = self.writable / repo.replace("/", "--")
            self.folders[repo].mkdir(parents=True)
            return self.json({"url": f"{address}/{repo}", "name": repo, "id": repo})
        if "/preupload/" in path:
            return self.json({"files": [
                {"path": each["path"], "uploadMode": "lfs" if each["path"].endswith(".safetensors") else "regular",
                 "shouldIgnore": False} for each in json.loads(body)["files"]
            ]})  # fmt: skip
        if path.endswith("/info/lfs/objects/batch"):
            return self.json({"transfer": "basic", "objects": [
                {"oid": each["oid"], "size": each["size"],
                 "actions": {"upload": {"href": f"{address}/lfs/{each['oid']}"}}}
                for each in json.loads(body)["objects"]
            ]})  # fmt: skip
        repo = path.removeprefix("/api/models/").partition("/commit/")[0]
        for line in map(json.loads, body.splitlines()):
            about = line["value"]
            if line["key"] == "file":
                (self.folders[repo] / about["path"]).write_bytes(base64.b64decode(about["content"]))
            elif line["key"] == "lfsFile":
                (self.folders[repo] / about["path"]).write_bytes(self.uploaded[about["oid"]])
        return self.json({"success": True, "commitOid": COMMIT, "commitUrl": f"{address}/{repo}/commit/{COMMIT}"})

    def json(self, body):
        return 200, {"Content-Type": "application/json"}, json.dumps(body).encode()

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
            hub.tokens.append(self.headers.get("Authorization", ""))
            self.reply(*hub.answer(self.path.partition("?")[0]))

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0]
            if path.startswith("/api/datasets/"):  # a question with a long list of paths, not an upload
                self.reply(*hub.answer(path, body))
            else:
                self.reply(*hub.take(unquote(path), body, f"http://{self.headers['Host']}"))

        do_HEAD = do_GET
        do_PUT = do_POST

        def reply(self, status, headers, body):
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

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
