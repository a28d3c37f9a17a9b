"""Texts from the Hub, against a stand-in on this machine in the Hub's own file layout; real client, real readers."""

import gzip
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import hub as hub_stand_in

ROOT = Path(__file__).parent.parent
READ = """
    import json, sys
    from ghosted import texts
    from ghosted.progress import drain
    found = {}
    for name in ("wikitext2", "ptb", "c4"):
        for split in ("train", "test"):
            text = drain(texts.read(name, split=split, tokens_needed=100))
            found[f"{name} {split}"] = [text.name, text.content]
    print(json.dumps(found))
"""
WIKI = {"train": ["", " = A heading = \n", " Some words about it . \n"], "test": [" Other words , unseen . \n"]}
PTB = {"train": ["no it was n't black monday", "but while the <unk> fell"], "test": ["the market rose N points"]}
C4 = {"train": ["First page.\nTwo lines.", "Second page, é."], "validation": ["A page to score."]}


def parquet(path, column, values):
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table({column: values}), path)


def lay_out(folder):
    """Write the three datasets as they lie on the Hub; return their folders by repository."""
    wiki, ptb, c4 = folder / "wiki", folder / "ptb", folder / "c4"
    for split, rows in WIKI.items():
        parquet(wiki / "wikitext-2-raw-v1" / f"{split}-00000-of-00001.parquet", "text", rows)
        parquet(wiki / "wikitext-103-raw-v1" / f"{split}-00000-of-00001.parquet", "text", ["another configuration"])
    configs = "".join(
        f"- config_name: {config}\n  data_files:\n"
        + "".join(f"  - split: {split}\n    path: {config}/{split}-*\n" for split in WIKI)
        for config in ("wikitext-2-raw-v1", "wikitext-103-raw-v1")
    )
    (wiki / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")
    for split, rows in PTB.items():
        parquet(ptb / "penn_treebank" / split / "0000.parquet", "sentence", rows)
    (folder / "ptb-main").mkdir()
    (folder / "ptb-main" / "ptb_text_only.py").write_text("raise SystemExit('a loading script was run')\n")
    for name, rows in (("c4-train.00000-of-01024", C4["train"]), ("c4-validation.00000-of-00008", C4["validation"])):
        (c4 / "en").mkdir(parents=True, exist_ok=True)
        lines = (json.dumps({"text": text, "timestamp": "2019-04-25T12:57:54Z", "url": "u"}) for text in rows)
        with gzip.open(c4 / "en" / f"{name}.json.gz", "wt", encoding="utf-8") as stream:
            stream.write("\n".join(lines) + "\n")
    return {
        "datasets/Salesforce/wikitext": wiki, "datasets/allenai/c4": c4,
        "datasets/ptb-text-only/ptb_text_only@refs/convert/parquet": ptb,
        "datasets/ptb-text-only/ptb_text_only": folder / "ptb-main",
    }  # fmt: skip


def test_the_hubs_parquet_and_gzipped_json_are_read_as_they_lie_there(tmp_path):
    with hub_stand_in.serving() as (stand_in, address):
        stand_in.folders |= lay_out(tmp_path / "hub")
        environment = os.environ | {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0",
                                    "GHOSTED_CACHE": str(tmp_path / "cache")}  # fmt: skip
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(READ)], cwd=ROOT, env=environment, text=True,
                              capture_output=True, timeout=120)  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        found = json.loads(done.stdout.splitlines()[-1])
        asked = list(stand_in.asked)
    assert found["wikitext2 train"] == ["wikitext2 (train)", "\n\n".join(WIKI["train"])]
    assert found["wikitext2 test"][1] == "\n\n".join(WIKI["test"])
    assert found["ptb train"][1] == " ".join(PTB["train"]) and found["ptb test"][1] == PTB["test"][0]
    assert found["c4 train"][1] == "\n\n".join(C4["train"]) and found["c4 test"][1] == C4["validation"][0]
    assert not any("wikitext-103" in path and path.endswith(".parquet") for path in asked)
