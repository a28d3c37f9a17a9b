"""Nothing is served but what is meant to be, nothing from outside is run, and what is said is escaped."""

import ast
import http.client
import json
import re
from importlib import metadata
from pathlib import Path

import gradio as gr
import pytest
from fake_run import facts, make_run
from pages import served

from analysis.bench._visitor import API, Refused, Site, Visitor
from analysis.limits import SHARED
from analysis.page import build_page
from analysis.settings import DEFAULT, FIELDS, values_of

ROOT = Path(__file__).parents[1]
SOURCES = [path for folder in ("ghosted", "analysis") for path in (ROOT / folder).rglob("*.py")] + [ROOT / "app.py"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with served(make_run(pace=0, steps=1), limits=SHARED) as address:
        yield Site(address)


def fetched(site, path, method="GET", body=None):
    """The status and the body of a path that is sent as it stands."""
    connection = http.client.HTTPConnection(site.host, site.port, timeout=3)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        if body is not None:
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read(200_000)
    finally:
        connection.close()


SECRETS = ["/etc/passwd", str(ROOT / "app.py"), "app.py", "../../../../etc/passwd", "file:///etc/passwd"]


@pytest.mark.parametrize("route", [f"{API}/file=", "/file=", f"{API}/file/", "/assets/", "/static/", f"{API}/proxy=",
                                   f"{API}/custom_component/", f"{API}/stream/"])  # fmt: skip
@pytest.mark.parametrize("secret", SECRETS)
def test_no_file_of_the_machine_is_served(site, route, secret):
    for path in (route + secret, route + secret.replace("/", "%2f"), route + "..%2f..%2f..%2f.." + secret,
                 route + "....//....//" + secret):  # fmt: skip
        status, body = fetched(site, path)
        assert status in (400, 403, 404, 405, 307, 422), (path, status)
        assert b"root:" not in body and b"import" not in body


@pytest.mark.parametrize("path", [
    "/monitoring", f"{API}/monitoring", f"{API}/runs", f"{API}/deep_link?session_hash=x", f"{API}/vibe-edit/",
    f"{API}/mcp/sse", f"{API}/mcp", "/docs", "/redoc", f"{API}/startup-events/x",
    "/.git/config", "/.env", "/requirements.txt", "/app.py",
])  # fmt: skip
def test_what_is_not_meant_to_be_is_not_there(site, path):
    status, body = fetched(site, path)
    assert status != 500 and (status >= 400 or body in (b"null", b"", b'""')), (path, status, body[:100])
    assert f"{Path.home()}/".encode() not in body and str(ROOT).encode() not in body


def test_what_the_page_says_of_itself_names_no_place_of_the_machine(site):
    config = site.get("/config").decode()
    assert str(ROOT) not in config and f"{Path.home()}/" not in config and "hf_" not in config
    public = [each for each in json.loads(config)["dependencies"] if each["api_visibility"] != "private"]
    declared = {"choose", "compare", "generate", "similarity", "decompose", "export"}
    assert {each["api_name"] for each in public} == declared


def test_the_handlers_of_the_page_are_no_endpoints(site):
    info = json.loads(site.get(f"{API}/info"))
    assert len(info["named_endpoints"]) == 6 and info["unnamed_endpoints"] == {}
    for specification in ("/openapi.json", f"{API}/openapi.json"):
        status, body = fetched(site, specification)
        assert status == 404 or not re.search(rb"/(start|follow|quick|imported|act|near)\b", body)


@pytest.mark.parametrize("path", ["/etc/passwd", "../../etc/passwd", str(ROOT / "app.py")])
@pytest.mark.parametrize("handler", ["upload", "imported"])
def test_a_file_that_was_not_uploaded_cannot_be_named_as_one(site, handler, path):
    visitor = Visitor(site)
    with pytest.raises(Refused):
        visitor.call(handler, [{"path": path, "meta": {"_type": "gradio.FileData"}}])
    values = values_of(DEFAULT) | {"text": path}
    said = visitor.call("start", [values[name] for name in FIELDS])
    assert "upload the text" in said[site.ids["gl-status"]]


def test_an_upload_that_is_too_large_is_refused_as_such(site):
    boundary, data = "x", b"a" * (SHARED.upload + 100_000)
    body = (b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\n' + data + b"\r\n--x--\r\n")
    connection = http.client.HTTPConnection(site.host, site.port, timeout=60)
    try:
        connection.request("POST", f"{API}/upload", body, {"Content-Type": f"multipart/form-data; boundary={boundary}"})
        answer = connection.getresponse()
        said = answer.read(2000)
    finally:
        connection.close()
    assert answer.status == 413 and b"exceeded" in said


@pytest.mark.parametrize("name", ["../../evil.txt", "/etc/evil.txt", "..\\evil.txt", "a\0b.txt", "<img src=x>.txt"])
def test_the_name_of_an_upload_leads_nowhere(site, name):
    head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="' + name.encode() + b'"\r\n\r\n'
    connection = http.client.HTTPConnection(site.host, site.port, timeout=3)
    try:
        connection.request("POST", f"{API}/upload", head + b"words\r\n--x--\r\n",
                           {"Content-Type": "multipart/form-data; boundary=x"})  # fmt: skip
        answer = connection.getresponse()
        paths = json.loads(answer.read()) if answer.status == 200 else []
    finally:
        connection.close()
    for path in paths:
        assert "gradio" in path and ".." not in Path(path).parts and "<" not in Path(path).name
    assert not Path("/etc/evil.txt").exists() and not (ROOT.parent / "evil.txt").exists()


# What the code does not do


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {key.arg: ast.unparse(key.value) for key in node.keywords}


OURS = {
    "ghosted/distributed.py": {"torch.load"},  # what the first rank of this very run hands the others
    "ghosted/formats/_round_trip.py": {"AutoModelForCausalLM.from_pretrained"},  # reads what was just written by us
}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_pickle_no_remote_code_no_shell(path):
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [each.name for each in node.names] + [getattr(node, "module", None) or ""]
            assert not {"pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"} & set(names)
    allowed = OURS.get(path.relative_to(ROOT).as_posix(), set())
    for name, given in calls(tree):
        if name in allowed:
            continue
        assert name not in ("eval", "exec", "compile", "os.system", "os.popen", "torch.load", "yaml.load"), name
        assert given.get("shell") in (None, "False") and given.get("trust_remote_code") in (None, "False"), name
        assert given.get("allow_pickle") in (None, "False"), name
        if (name.endswith("from_pretrained") and "Model" in name) or name.endswith("reader.from_pretrained"):
            assert given.get("use_safetensors") == "True" or "gguf_file" in given, name


def test_what_a_template_puts_into_the_page_is_never_run():
    """Gradio executes what ``{{value}}`` of an HTML component is given; ``${value}`` it does not."""
    page = build_page(make_run(pace=0, steps=1), facts)
    html = [block for block in page.blocks.values() if isinstance(block, gr.HTML)]
    assert html and not [block for block in html if "{{" in f"{block.html_template}{block.css_template}"]
    for script in (ROOT / "assets").rglob("*.js"):
        code = script.read_text("utf-8")
        assert not re.search(r"\beval\(|new Function\(|document\.write\(", code), script


DATE = "2026-11-30"
LEAST = {
    "aiohttp": "3.12.14", "certifi": "2024.7.4", "filelock": "3.20.1", "h11": "0.16.0", "idna": "3.7",
    "jinja2": "3.1.6", "pillow": "11.3.0",
    "python-multipart": "0.0.18", "requests": "2.32.4", "starlette": "0.49.1", "torch": "2.8.0",
    "tqdm": "4.66.3", "transformers": "4.53.0", "urllib3": "2.6.0", "setuptools": "78.1.1",
}
"""The versions in which faults that were public on :data:`DATE` are mended, of the packages that come with ours.

``.ci/run`` asks ``pip-audit``, whose database knows more; this list stands in where that cannot be reached.
"""


def numbers(version):
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


@pytest.mark.parametrize("name", sorted(LEAST.keys() & {each.name.lower() for each in metadata.distributions()}))
def test_no_package_is_older_than_what_mends_its_known_faults(name):
    installed = metadata.version(name)
    assert numbers(installed) >= numbers(LEAST[name]), f"{name} {installed} has known faults ({DATE})"
