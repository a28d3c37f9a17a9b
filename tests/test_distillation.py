import math
from dataclasses import replace
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from test_fitting import calibration as calibrated
from test_fitting import fitted, windows
from tiny import FAMILIES, TINY, VARIANTS, logits_of, tokenizer

import ghosted.distillation
from ghosted import operators
from ghosted.calibration import calibrate
from ghosted.commands.compare import table
from ghosted.distillation import bucket_kl, distill, read_teacher, schedule
from ghosted.errors import Cancelled
from ghosted.experiment import Experiment
from ghosted.fitting import repairs_of
from ghosted.models import LoadedModel
from ghosted.progress import CancelFlag, Progress, drain
from ghosted.pruned import pruned_view
from ghosted.removed import RemovedBlocks
from ghosted.results import Residual
from ghosted.run import compare_json, run
from ghosted.workspace import Workspace

GAP = RemovedBlocks.parse("2-3")
calibration = cache(calibrated)  # nothing here changes one


def teacher_of(known, removed=GAP, steps=20, **changes):
    return drain(read_teacher(known, removed, steps, **changes))


def distilled(known, removed=GAP, name="ghosted", steps=10, rate=1e-2, **changes):
    fits = fitted(name, removed, known=known)
    found, how = drain(distill(teacher_of(known, removed, steps, **changes), fits, steps, rate=rate))
    return fits, found, how


def held_out_kl(model, removed, fits, ids):
    """KL(original ‖ variant) over the whole vocabulary, in nats per token, by the library's own function."""
    variant = logits_of(pruned_view(model, removed, repairs_of(removed.gaps, fits)), ids).log_softmax(-1)
    original = logits_of(model, ids).log_softmax(-1)
    return float(F.kl_div(variant, original, log_target=True, reduction="none").sum(-1).mean())


def random_buckets(k, n=40, V=50, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z, logits = (torch.randn(n, V, generator=generator) * 3 for _ in range(2))
    log_p = z.log_softmax(-1)
    values, top = log_p.topk(k, dim=-1)
    rest = log_p.scatter(-1, top, -math.inf).logsumexp(-1, keepdim=True)
    return z, logits, top.int(), torch.cat([values, rest], dim=-1)


def test_with_every_token_kept_the_loss_is_the_whole_kl():
    z, logits, top, log_p = random_buckets(50)
    assert (log_p[:, -1] == -math.inf).all()
    exact = F.kl_div(logits.log_softmax(-1), z.log_softmax(-1), log_target=True, reduction="sum")
    assert bucket_kl(logits, top, log_p) == pytest.approx(float(exact), rel=1e-5)


@pytest.mark.parametrize("k", [1, 7, 49, 50])
def test_the_loss_is_the_sum_over_buckets_and_its_gradient_is_autograds(k):
    _, logits, top, log_p = random_buckets(k)
    z = logits.double().requires_grad_(True)
    s = z.softmax(-1)
    kept = s.gather(-1, top.long())
    t = log_p.double().exp()
    pairs = torch.cat([kept, (1 - kept.sum(-1, keepdim=True))], dim=-1)[:, : k + (k < 50)]
    t = t[:, : pairs.shape[1]]
    plain = (t * (t / pairs).log()).sum()
    plain.backward()
    gradient = torch.empty_like(logits)
    assert bucket_kl(logits, top, log_p, gradient, scale=0.5) == pytest.approx(plain.item(), rel=1e-5)
    assert torch.allclose(gradient, 0.5 * z.grad.float(), atol=1e-6)


def test_fewer_buckets_never_say_more():
    values = [bucket_kl(*(random_buckets(k)[1:])) for k in (1, 3, 10, 30, 50)]
    assert values == sorted(values) and values[0] > 0


@pytest.mark.parametrize("family", [*FAMILIES, *VARIANTS])
def test_the_teacher_is_the_original_and_the_student_starts_as_the_fitted_model(family):
    known = calibration(family)
    fits, _, how = distilled(known, steps=1, kept=260)
    teacher, ids = teacher_of(known, steps=4, kept=260), torch.stack(known.splits["held_out"].rows)
    p = logits_of(known.loaded.model, ids).log_softmax(-1)
    kept = torch.zeros_like(p).scatter(-1, teacher.held_out.top.long(), teacher.held_out.log_p[..., :-1].float())
    assert torch.equal(teacher.held_out.ids, ids) and torch.allclose(kept, p, rtol=2e-3, atol=2e-3)
    expected = held_out_kl(known.loaded.model, GAP, fits, ids)
    assert how.kl_before == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize(
    ("family", "removed"),
    [("llama", "2-3"), ("llama", "0-1"), ("llama", "4-5"), ("falcon", "1,3"), ("bloom", "0,2,5"), ("gemma2", "1,4-5"),
     ("gpt2", "1,3"), ("opt-post", "2-3"), ("mixtral", "2-3"), ("gptj", "2-3")],
)
def test_training_lowers_the_real_models_kl_and_never_touches_the_original(family, removed):
    known, removed = calibration(family), RemovedBlocks.parse(removed)
    model = known.loaded.model
    before = {name: p.clone() for name, p in model.named_parameters()}
    hooks = [(dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in model.modules()]  # transformers' own, if any
    fits, found, how = distilled(known, removed, "linearpatch", kept=260)
    ids = torch.stack(known.splits["held_out"].rows)
    assert how.kl_after < how.kl_before and how.best_step > 0
    assert held_out_kl(model, removed, found, ids) == pytest.approx(how.kl_after, rel=5e-3)
    assert all(not torch.equal(a.M, b.M) for a, b in zip(fits, found, strict=True))
    for name, p in model.named_parameters():
        assert p.grad is None and not p.requires_grad and torch.equal(p, before[name])
    assert [(dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in model.modules()] == hooks


def test_the_gradient_of_the_operator_is_autograds_own():
    from ghosted.distillation import Student

    known = calibration()
    teacher, fits = teacher_of(known, kept=260), fitted("ghosted", GAP, known=known)
    student, rows = Student(teacher, fits, 1e-2), teacher.train.rows(torch.arange(4))
    for part in rows.batches(2):  # in two parts, as the memory wants it
        student.learn(part, rows.ids.numel())
    M = fits[0].operator().requires_grad_(True)
    view = pruned_view(known.loaded.model, GAP, repairs_of(GAP.gaps, [replace(fits[0], M=M)]))
    original = logits_of(known.loaded.model, rows.ids).log_softmax(-1).clone()
    log_s = view(input_ids=rows.ids, use_cache=False).logits.log_softmax(-1)
    (F.kl_div(log_s, original, log_target=True, reduction="none").sum(-1).mean()).backward()
    assert torch.allclose(student.M[0].grad, M.grad, atol=2e-3 * float(M.grad.abs().max()))


def test_the_best_state_wins_and_never_the_last():
    known = calibration()
    fits, found, how = distilled(known, rate=1e4, steps=60)
    assert found[0] is fits[0] and how.best_step == 0 and how.kl_after == how.kl_before
    assert how.steps < 60  # it stopped early, too
    _, how = drain(distill(teacher_of(known), fitted("linearpatch", GAP, known=known), 60, rate=0.1))
    assert 0 < how.best_step < how.steps and how.kl_after < how.kl_before  # it got worse again after that


def test_a_broken_operator_is_left_alone():
    known = calibration()
    fits = [replace(fitted("ghosted", GAP, known=known)[0], M=torch.full((32, 32), math.nan))]
    found, how = drain(distill(teacher_of(known), fits, 20))
    assert found[0] is fits[0] and (how.steps, how.kl_before, how.kl_after) == (0, None, None)


def test_a_distilled_fit_is_saved_as_a_full_matrix():
    _, (found,), _ = distilled(calibration(), name="linearpatch")
    again = operators.Fitted.restore(found.tensors(), found.config())
    assert found.structure == "full" and found.added_parameters == 32 * 32
    assert torch.equal(again.operator(), found.operator())


@pytest.mark.parametrize("during", ["reading the original's predictions", "distilling ghosted"])
def test_a_stop_is_heard_everywhere_and_changes_nothing(during):
    known, flag, seen = calibration(), CancelFlag(), []
    fits = fitted("ghosted", GAP, known=known)
    M = fits[0].M.clone()

    def stop(event: Progress):
        seen.append(event)
        if event.stage == during and event.done > 5:
            flag.set()

    with pytest.raises(Cancelled):
        teacher = drain(read_teacher(known, GAP, 20, cancel=flag), stop)
        drain(distill(teacher, fits, 20, name="ghosted", cancel=flag), stop)
    assert seen[-1].stage == during and seen[-1].done < seen[-1].total
    assert torch.equal(fits[0].M, M)
    assert all(p.grad is None and not p.requires_grad for p in known.loaded.model.parameters())


def test_what_is_kept_stays_within_its_bound():
    known = calibration()
    whole = teacher_of(known, kept=16)
    assert len(whole.train) == 12 and len(whole.held_out) == 3
    one = (whole.train.bytes + whole.held_out.bytes) // 15
    few = teacher_of(known, kept=16, limit_bytes=8 * one + 1)
    assert (len(few.train), len(few.held_out)) == (5, 3)
    assert few.train.bytes + few.held_out.bytes <= 8 * one
    assert len(teacher_of(known, steps=2).train) == 8  # no more than the steps can see
    assert teacher_of(known, kept=10**6).train.top.shape[-1] == 260


def test_windows_that_are_not_kept_anywhere_give_the_same_teacher():
    stored, fresh = teacher_of(calibration()), teacher_of(calibration(store_bytes=0))
    assert torch.equal(stored.train.ids, fresh.train.ids)
    assert torch.allclose(stored.train.states, fresh.train.states, atol=1e-5)
    assert torch.allclose(stored.train.log_p.float(), fresh.train.log_p.float(), atol=1e-2)
    for a, b in zip(stored.units[0], fresh.units[0], strict=True):
        assert torch.allclose(a, b, rtol=1e-4)


def test_a_shorter_rest_of_the_text_is_left_out():
    loaded = LoadedModel.of(TINY("llama"), tokenizer())
    text = windows(3, 1)
    ragged = replace(text, rows=(*text.rows, text.rows[0][:11]))
    known = drain(calibrate(loaded, ragged, ragged))
    teacher = teacher_of(known)
    assert teacher.train.ids.shape == (3, 40)
    alone = replace(text, rows=(text.rows[0][:11],))
    assert teacher_of(drain(calibrate(loaded, alone, alone))).train.ids.shape == (1, 11)


def test_the_order_is_seeded():
    known = calibration()
    fits, teacher = fitted("linearpatch", GAP, known=known), teacher_of(known)
    runs = [drain(distill(teacher, fits, 10, seed=seed, rate=1e-2))[0][0].M for seed in (0, 0, 1)]
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])


def test_the_rate_rises_and_falls():
    rates = [schedule(step, 60) for step in range(1, 61)]
    assert max(rates) == rates[5] == 1.0 and rates[0] == pytest.approx(1 / 6)
    assert rates[5:] == sorted(rates[5:], reverse=True) and 0 < rates[-1] < 0.01
    assert 0 < schedule(1, 1) <= 1 and all(0 < schedule(step, 2) <= 1 for step in (1, 2))


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "text.txt"
    path.write_text("".join(f"Sentence {i} of a text that goes on about {i * i % 97} things. " for i in range(900)))
    return str(path)


def test_a_run_distills_and_its_json_says_so(text):
    e = Experiment(text=text, tokens=1024, window=64, windows=3, remove="2-3", distill=10,
                   methods=("none", "linearpatch", "replaceme", "ghosted"))  # fmt: skip
    space = Workspace(LoadedModel.of(TINY("llama"), tokenizer()))
    finished = drain(run(e, space, parts=("boundary", "scores")))
    plain = drain(run(replace(e, distill=0), space, parts=("boundary", "scores")))
    shown = table(compare_json(finished))
    assert "\nghosted: 10 steps of distillation in" in shown and "best after step 10" in shown
    payload = {m["method"]: m for m in compare_json(finished)["methods"]}
    for name in ("none", "replaceme"):
        assert "distill" not in payload[name]
        assert finished.method(name).perplexity == plain.method(name).perplexity
    for name in ("linearpatch", "ghosted"):
        entry = payload[name]["distill"]
        assert set(entry) == {"steps", "best_step", "kl_before", "kl_after", "seconds"} and entry["steps"] == 10
        assert entry["best_step"] == 10 and entry["kl_after"] < entry["kl_before"]
        assert finished.method(name).perplexity != plain.method(name).perplexity
    assert "distill" not in compare_json(plain)["methods"][3] and "distill" in finished.seconds
    (warning,) = [w for w in finished.warnings if "istilled" in w]
    assert "replaceme;" in warning and "none" not in warning
    assert "linearpatch, ghosted, ghosted-weighted" in warning


@pytest.mark.parametrize(("steps", "rate", "warned"), [(0, 0, True), (10, 1e-3, False), (10, 1e4, True)])
def test_a_boundary_error_above_one_is_not_held_against_an_operator_that_was_trained_for_less(
    text, monkeypatch, steps, rate, warned
):
    def boundary_residuals(calibration, gap, fitted, *_):
        return dict.fromkeys(fitted, Residual(0.5, 1.5, 1.0))
        yield

    monkeypatch.setattr("ghosted.scores.residual.boundary_residuals", boundary_residuals)
    real = ghosted.distillation.distill
    monkeypatch.setattr("ghosted.distillation.distill", lambda *a, **more: real(*a, **more, rate=rate))
    e = Experiment(text=text, tokens=1024, window=64, windows=3, remove="2-3", distill=steps, methods=("ghosted",))
    finished = drain(run(e, Workspace(LoadedModel.of(TINY("llama"), tokenizer())), parts=("boundary",)))
    assert any("above 1" in w for w in finished.warnings) == warned


def test_a_run_for_generation_alone_is_distilled_too(text):
    e = Experiment(text=text, tokens=1024, window=64, remove="2-3", distill=10, methods=("ghosted",), prompt="It",
                   max_new_tokens=2)  # fmt: skip
    finished = drain(run(e, Workspace(LoadedModel.of(TINY("llama"), tokenizer())), parts=("columns",)))
    assert finished.method("ghosted").distill.best_step == 10 and len(finished.columns) == 2


def test_with_nothing_removed_there_is_nothing_to_distill(text):
    e = Experiment(text=text, tokens=1024, window=64, windows=3, distill=10, methods=("ghosted",))
    finished = drain(run(e, Workspace(LoadedModel.of(TINY("llama"), tokenizer())), parts=("scores",)))
    assert finished.self_check and finished.method("ghosted").distill is None
    assert not any("istilled" in warning for warning in finished.warnings)
