"""The HTTP endpoints, asked as a program asks them: over a real server with gradio's own client."""

import zipfile

import pytest
from fake_run import CHOICES, make_run
from gradio_client import Client
from pages import served

from analysis.limits import SHARED


@pytest.fixture(scope="module")
def client():
    with served(make_run(pace=0.001, steps=2), limits=SHARED) as address:
        yield Client(address, verbose=False)


def test_choose_returns_what_the_command_prints(client):
    found = client.predict(criterion="cosine", count=5, api_name="/choose")
    assert found["remove"] == "12-16" and found == CHOICES["cosine"].to_json()


def test_compare_holds_the_protocol_beside_every_number(client):
    found = client.predict(remove="14-18", methods="none,ghosted", api_name="/compare")
    assert [m["method"] for m in found["methods"]] == ["none", "ghosted"]
    assert found["methods"][1]["perplexity"] == 31.8 and found["dense"]["perplexity"] == 22.7
    assert found["protocol"]["window"] == 512 and found["experiment"]["remove"] == "14-18"


def test_generate_begins_with_the_original(client):
    found = client.predict(prompt="The river", remove="14-18", methods="none", max_new_tokens=4, api_name="/generate")
    assert [column["method"] for column in found["columns"]] == ["original", "none"]
    assert len(found["columns"][0]["tokens"]) == 4


def test_similarity_is_square_and_its_influence_belongs_to_the_blocks(client):
    found = client.predict(api_name="/similarity")
    assert len(found["cosine"]) == 31 == len(found["cosine"][0]) and len(found["block_influence"]) == 30
    assert found["block_influence"][3] == pytest.approx(1 - found["cosine"][3][4], abs=2e-6)


def test_decompose_gives_shares_and_spectra_of_every_linear_operator(client):
    found = client.predict(remove="14-18", methods="ghosted,replaceme", api_name="/decompose")
    assert found["operators"].keys() == {"ghosted"}
    one = found["operators"]["ghosted"]
    assert 0 < one["share_antisymmetric"] < 1 and len(one["eigenvalues"]) == 64 == len(one["singular_values"])


def test_export_returns_the_file_of_one_method(client):
    path = client.predict(remove="14-18", method="replaceme", format="merged", api_name="/export")
    with zipfile.ZipFile(path) as archive:
        assert [name.rpartition("/")[2] for name in archive.namelist()] == ["wanted.txt"]
        assert archive.read(archive.namelist()[0]) == b"14-18 replaceme merged"
