"""The criteria that run the model: against plain loops and autograd, on every family, and what they leave behind."""

import copy
import gc
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tiny import BLOCKS, FAMILIES, PLANTED, TINY, build, config_of, logits_of, tokenizer

from ghosted import criteria, machine
from ghosted.calibration import calibrate
from ghosted.criteria import _taylor, taylor
from ghosted.errors import Cancelled, InputError, ResourceError
from ghosted.models import LoadedModel
from ghosted.progress import CancelFlag, Note, Progress, drain
from ghosted.pruned import pruned_view
from ghosted.removed import RemovedBlocks
from ghosted.texts import pack

ALL = ("cosine", "cosine-channel", "angular", "block-influence", "taylor", "perplexity", "sleb")
LONG = ("cosine-channel", "taylor", "perplexity", "sleb")
PLUS = ("taylor+", "perplexity+")


@pytest.fixture(autouse=True)
def nothing_is_kept(tmp_path, monkeypatch):
    """What a criterion computes is tested here; that its choice is kept is tested in ``test_best``."""
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path))
    monkeypatch.setattr("ghosted.criteria._saved.restore", lambda entry: None)


def windows(tokens, start=0, window=32, ids=None):
    if ids is None:
        ids = torch.randint(0, 250, (4096,), generator=torch.Generator().manual_seed(5)).tolist()
    return pack(ids, start=start, tokens=tokens, window=window, bos_id=None, text="random", digest="d")


def evidence(model, text=None, **settings):
    loaded = LoadedModel.of(model, tokenizer())
    calibration = drain(calibrate(loaded, text or windows(208), windows(64, 600), **settings))
    return criteria.Evidence(calibration.similarity, calibration)


def choose(name, of, count, events=None):
    return drain(criteria.choose(name, of, count), None if events is None else events.append)


def loss(model, text, removed=()):
    """Mean next-token loss over all windows, by a plain loop over a pruned view."""
    view, total, scored = pruned_view(model, RemovedBlocks.of(removed)), 0.0, 0
    for row in text.rows:
        logits = logits_of(view, row[None])[0]
        total += float(F.cross_entropy(logits[:-1], row[1:], reduction="sum"))
        scored += len(row) - 1
    return total / scored


@pytest.mark.parametrize("family", FAMILIES)
def test_every_criterion_chooses_in_every_family(family):
    of = evidence(TINY(family), windows(80))
    for name in ALL:
        choice = choose(name, of, 2)
        assert RemovedBlocks.parse(choice.remove, BLOCKS).count == 2, name
        assert np.isfinite([c.score for c in choice.candidates]).all() and choice.runner_up.remove != choice.remove
        order = [c.score for c in choice.candidates]
        if name not in ("block-influence", "taylor", "perplexity"):
            assert choice.score == (max(order) if choice.higher_is_better else min(order)), name
        else:
            assert choice.score == pytest.approx(sum(sorted(order)[:2])) and len(order) == BLOCKS
    for name in PLUS:
        with pytest.raises(InputError, match="at most 0 can go, not 2"):
            choose(name, of, 2)


@pytest.mark.parametrize("name", [*LONG, *PLUS])
@pytest.mark.parametrize("count", [0, 24])
def test_a_count_that_leaves_nothing_is_refused_before_anything_runs(name, count):
    of = criteria.Evidence(evidence_of_planted().similarity)  # without a calibration nothing could run
    with pytest.raises(InputError, match="choose a count from 1 to 23"):
        choose(name, of, count)


def text_of(model, rows, window):
    """What the model itself writes, each window from token 0 on: any other model's expected loss is higher (Gibbs)."""
    ids, generator = torch.zeros(rows, 1, dtype=torch.long), torch.Generator().manual_seed(0)
    while ids.shape[1] < window:
        p = logits_of(model, ids)[:, -1].softmax(-1)
        ids = torch.cat([ids, torch.multinomial(p, 1, generator=generator)], dim=1)
    return windows(rows * window, window=window, ids=ids.flatten().tolist())


@cache
def evidence_of_planted():
    return evidence(PLANTED(), text_of(PLANTED(), 8, 64))


@pytest.mark.parametrize("name", [*ALL, *PLUS])
def test_case_1_planted_identities_are_chosen_by_every_criterion(name):
    choice = choose(name, evidence_of_planted(), 2)
    assert choice.remove == "14-15"
    scores = {c.remove: c.score for c in choice.candidates}
    if name.startswith("taylor"):
        assert scores["14"] == scores["15"] == choice.score == 0.0
    if name in PLUS:
        assert set(scores) == {str(b) for b in range(4, 22)}
    if name == "sleb":
        assert choice.score == pytest.approx(loss(PLANTED(), evidence_of_planted().calibration.splits["calibration"]))


@pytest.mark.parametrize("store_bytes", [2**30, 0])
def test_cosine_per_channel_runs_along_the_tokens_of_each_window(store_bytes):
    of = evidence(TINY("llama"), store_bytes=store_bytes)
    events, text = [], of.calibration.splits["calibration"]
    choice = choose("cosine-channel", of, 2, events)
    expected = np.zeros(BLOCKS - 1)
    for ids, states in of.calibration.states("calibration"):
        for row in range(len(ids)):
            for i in range(BLOCKS - 1):
                per_channel = F.cosine_similarity(states[i][row].double(), states[i + 2][row].double(), dim=0)
                expected[i] += len(ids[row]) * float(per_channel.mean()) / text.tokens
    assert [c.score for c in choice.candidates] == pytest.approx(expected.tolist(), abs=1e-6)
    assert [c.remove for c in choice.candidates] == ["0-1", "1-2", "2-3", "3-4", "4-5"] and choice.higher_is_better
    assert choice.cost.tokens == (0 if store_bytes else text.tokens) and choice.cost.memory_bytes == 0
    assert any(isinstance(e, Note) for e in events) == (store_bytes == 0)


@pytest.mark.parametrize("family", ["llama", "gpt2", "mixtral", "falcon", "gemma2", "bloom", "opt"])
def test_taylor_equals_autograd_on_the_whole_model(family):
    text = windows(208)
    choice = choose("taylor", evidence(TINY(family), text), 2)
    model = copy.deepcopy(TINY(family)).requires_grad_(True)
    total = sum(F.cross_entropy(model(row[None]).logits[0, :-1], row[1:], reduction="sum") for row in text.rows)
    (total / sum(len(row) - 1 for row in text.rows)).backward()
    path = next(n for n, m in model.named_modules() if isinstance(m, torch.nn.ModuleList) and len(m) == BLOCKS)
    expected = [
        sum(float((p.detach() * p.grad).abs().sum()) for p in block.parameters() if p.grad is not None)
        for block in model.get_submodule(path)
    ]
    assert [c.score for c in choice.candidates] == pytest.approx(expected, rel=1e-4)


def test_taylor_reads_ten_windows_and_no_more(monkeypatch):
    seen = []
    whole = _taylor.lowest_blocks
    monkeypatch.setattr(_taylor, "lowest_blocks", lambda *args: seen.append(args) or whole(*args))
    many, ten = (choose("taylor", evidence(TINY("llama"), windows(n * 32)), 2) for n in (14, 10))
    assert many.candidates == ten.candidates and many.cost.tokens == 3 * 320
    _, _, scores, by_text, allowed = seen[0]
    assert by_text.shape == (10, BLOCKS) and by_text.mean(0) == pytest.approx(scores) and by_text.std(0).min() > 0
    assert list(allowed) == list(range(BLOCKS))


def test_taylor_takes_more_memory_where_states_or_gradients_are_larger():
    small, wide = evidence(TINY("llama")), evidence(build(config_of("llama", intermediate_size=640)))
    longer = evidence(TINY("llama"), windows(256, window=256))
    cost = [taylor.cost(of, 2) for of in (small, wide, longer)]
    assert cost[1].memory_bytes > cost[0].memory_bytes < cost[2].memory_bytes
    none_kept = evidence(TINY("llama"), store_bytes=0)
    assert taylor.cost(none_kept, 2).tokens == 4 * 208 and cost[0].tokens == 3 * 208
    scores = [[c.score for c in choose("taylor", of, 2).candidates] for of in (small, none_kept)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-5)


def test_case_28_too_little_memory_is_said_before_the_start(monkeypatch):
    of, events = evidence(TINY("llama")), []
    need = taylor.cost(of, 2).memory_bytes
    monkeypatch.setattr(machine, "available_memory", lambda device=None: need - 1)
    with pytest.raises(ResourceError, match=r"taylor needs about .* GB more and .* are free; take cosine"):
        choose("taylor", of, 2, events)
    assert not events
    monkeypatch.setattr(machine, "available_memory", lambda device=None: need)
    assert choose("taylor", of, 2, events).cost.memory_bytes == need
    assert isinstance(events[0], Note) and "GB more memory" in str(events[0])


@pytest.mark.parametrize("end", ["finished", "failed", "cancelled"])
def test_case_28_no_gradient_is_left_behind(end, monkeypatch):
    model = build(config_of("llama"))
    of = evidence(model)
    before = {name: (p, p.data_ptr(), p.clone()) for name, p in model.named_parameters()}
    if end == "finished":
        choose("taylor", of, 2)
    elif end == "failed":
        real, calls = torch.autograd.grad, []

        def fails_at_the_third(*args, **kwargs):
            calls.append(1)
            if len(calls) == 3:
                raise RuntimeError("out of memory")
            return real(*args, **kwargs)

        monkeypatch.setattr(torch.autograd, "grad", fails_at_the_third)
        with pytest.raises(RuntimeError, match="out of memory"):
            choose("taylor", of, 2)
        monkeypatch.undo()
    else:
        stop_after(of, "taylor", 12)
    for name, p in model.named_parameters():
        was, place, value = before[name]
        assert p is was and p.data_ptr() == place and torch.equal(p, value), name
        assert p.grad is None and not p.requires_grad and p.is_leaf, name
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in model.modules())
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_case_28_what_taylor_kept_is_freed_with_it():
    of = evidence(build(config_of("llama")), store_bytes=0)
    weights = {p.untyped_storage().data_ptr() for p in of.calibration.loaded.model.parameters()}

    def own_bytes():
        storages = [t.untyped_storage() for t in gc.get_objects() if type(t) in (torch.Tensor, torch.nn.Parameter)]
        return sum({s.data_ptr(): s.nbytes() for s in storages if s.data_ptr() not in weights}.values())

    gc.collect()
    before = own_bytes()
    choose("taylor", of, 2)
    assert own_bytes() - before < 10_000  # no collection of cycles needed; the states alone were 186 kB


def stop_after(of, name, steps):
    of.cancel, seen = CancelFlag(), []

    def watch(event):
        seen.append(event)
        if sum(isinstance(e, Progress) for e in seen) == steps:
            of.cancel.set()

    with pytest.raises(Cancelled):
        drain(criteria.choose(name, of, 2), watch)
    assert sum(isinstance(e, Progress) for e in seen) == steps
    of.cancel = None


@pytest.mark.parametrize("name", LONG)
def test_long_criteria_stop_at_the_next_step_and_run_again(name):
    of = evidence(TINY("llama"))
    whole = choose(name, of, 2)
    stop_after(of, name, 3)
    assert choose(name, of, 2) == whole


def test_perplexity_equals_a_plain_loop_over_pruned_models():
    text = windows(336)  # ten whole windows and a shorter one, which is not read
    choice = choose("perplexity", evidence(TINY("llama"), text), 2)
    expected = [loss(TINY("llama"), text.first(10), [b]) for b in range(BLOCKS)]
    assert [c.score for c in choice.candidates] == pytest.approx(expected, abs=1e-5)
    order = np.argsort(expected)
    assert choice.remove == str(RemovedBlocks.of(order[:2].tolist()))
    assert choice.runner_up.remove == str(RemovedBlocks.of(order[[0, 2]].tolist()))
    assert choice.cost.tokens == 320 * (1 + BLOCKS)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
@pytest.mark.parametrize("count", [1, 3, 5])
def test_sleb_equals_greedy_removal_by_a_plain_loop(family, count):
    text = windows(208)
    of, events = evidence(TINY(family), text), []
    choice = choose("sleb", of, count, events)
    removed = []
    for _ in range(count):
        losses = {b: loss(TINY(family), text, [*removed, b]) for b in range(BLOCKS) if b not in removed}
        before, removed = removed, [*removed, min(losses, key=losses.get)]
    assert choice.remove == str(RemovedBlocks.of(removed)) and not choice.higher_is_better
    assert choice.score == pytest.approx(min(losses.values()), abs=1e-5)
    sets = {str(RemovedBlocks.of([*before, b])): value for b, value in losses.items()}
    assert {c.remove: c.score for c in choice.candidates} == pytest.approx(sets, abs=1e-5)
    assert choice.runner_up.remove == sorted(sets, key=sets.get)[1]
    # What was announced is what was done: every window went through once per pass.
    done = [e for e in events if isinstance(e, Progress)]
    assert done[-1].done == done[-1].total and all(a.done < b.done for a, b in pairwise(done))
    assert choice.cost.tokens == text.tokens * done[-1].total / len(text)
    assert choice.cost.tokens == text.tokens * sum(1 + BLOCKS - k for k in range(count))


def test_sleb_scores_4096_tokens_at_most():
    of = evidence(TINY("llama"), windows(4090, window=200))
    assert choose("sleb", of, 1).cost.tokens == 4000 * (1 + BLOCKS)  # twenty whole windows
