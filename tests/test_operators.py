"""Each method on its own: closed forms, its equation, what it saves, and every method in every family through a run."""

import json
import math

import pytest
import torch
import torch.nn.functional as F
from tiny import FAMILIES, TINY, tokenizer

from ghosted import operators
from ghosted.calibration.statistics import Boundary, GapStatistics
from ghosted.errors import Cancelled, InputError, NotDefined
from ghosted.experiment import Experiment
from ghosted.models import LoadedModel
from ghosted.operators import Fitted, Settings, replaceme_cosine
from ghosted.progress import CancelFlag, Progress, drain, settled
from ghosted.run import compare_json, run
from ghosted.solve import RIDGES, Spectrum, residual_norm
from ghosted.workspace import Workspace

ALL = tuple(operators.methods())
LADDER = ("none", "scalar", "diagonal", "procrustes", "symmetric", "low-rank", "ghosted")
GAP = range(2, 4)


def fit(name, statistics, **settings):
    return drain(settled(operators.method(name).fit(statistics, Settings(**{"ridge": 0.0} | settings))))


def statistics_of(X, D, branch=None, names=ALL):
    """Statistics of one window of states; double precision where they are."""
    needs = operators.needs(names) - (frozenset() if branch is not None else {"feed_forward"})
    found = GapStatistics(GAP, X.shape[-1], needs)
    found.add(Boundary(X[None], (X + D)[None], None if branch is None else branch[None]))
    return found


def random_states(tokens=200, width=8, seed=0, noise=0.5):
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(tokens, width, generator=g) * torch.linspace(0.5, 2, width)
    M = torch.randn(width, width, generator=g) * 0.3
    return X, X @ M + noise * torch.randn(tokens, width, generator=g)


def test_the_ladder_stands_in_its_order():
    named = operators.methods()
    assert set(LADDER) | {"linearpatch", "replaceme", "replaceme-cosine", "normalised"} <= set(named)
    assert [n for n in named if n in LADDER] == list(LADDER)
    for module in named.values():
        assert module.LABEL and "Source" in module.__doc__ + "Source" * (module.NAME == "none")


def test_case_13_every_least_squares_method_gives_the_minimum_norm_solution():
    X = torch.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])
    statistics = statistics_of(X, X)
    M = fit("ghosted", statistics).M
    assert M[0].tolist() == pytest.approx([0.8333, 0.3333, -0.1667], abs=1e-4)
    # Here Δ = X, so the best operator is the projection on the rows of X: symmetric, and of rank 2.
    torch.testing.assert_close(fit("symmetric", statistics).M, M, atol=1e-6, rtol=0)
    torch.testing.assert_close(fit("low-rank", statistics, rank=2).M, M, atol=1e-6, rtol=0)
    torch.testing.assert_close(fit("scalar", statistics).M, torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(fit("diagonal", statistics).M, torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize("name", [n for n in LADDER if n != "none"])
def test_case_14_states_in_bfloat16_are_as_good_as_a_solve_in_float64_on_the_same_states(name):
    X, D = random_states(2000, 32)
    X = X + 40 * torch.eye(32)[0]  # a channel that dwarfs the others: where moments in bfloat16 break
    pre, post = X.bfloat16(), (X + D).bfloat16()
    statistics = GapStatistics(GAP, 32, frozenset({"state"}))
    statistics.add(Boundary(pre[None], post[None]))
    exact = GapStatistics(GAP, 32, frozenset({"state"}))
    x, d = pre.double(), post.double() - pre.double()
    exact.sums |= {"state.G": x.mT @ x, "state.B": x.mT @ d, "delta": d.square().sum()[None]}
    left = [float((x @ fit(name, s, ridge=1e-6).M - d).norm() / d.norm()) for s in (statistics, exact)]
    assert left[0] == pytest.approx(left[1], abs=1e-3)
    assert left[0] < 1 or name == "scalar"


def test_planted_operators_are_found_exactly():
    X, _ = random_states(300, 6)
    g = torch.Generator().manual_seed(7)
    eye, full = torch.eye(6), torch.randn(6, 6, generator=g)
    planted = {
        "scalar": 0.4 * eye, "diagonal": torch.linspace(-0.5, 0.5, 6).diag(), "symmetric": full + full.T,
        "procrustes": torch.linalg.qr(full).Q - eye, "low-rank": full[:, :2] @ full[:2], "ghosted": full,
    }
    for name, M in planted.items():
        found = fit(name, statistics_of(X, X @ M), rank=2).M
        torch.testing.assert_close(found, M.double(), atol=2e-5, rtol=0)


def test_symmetric_solves_its_equation_and_is_not_the_symmetric_part_of_the_unconstrained_operator():
    X, D = random_states()
    statistics = statistics_of(X, D)
    moments = statistics.moments("state")
    for ridge in (0.0, 0.1):
        M = fit("symmetric", statistics, ridge=ridge).M
        shifted = moments.G + ridge * moments.G.diagonal().mean() * torch.eye(8)
        torch.testing.assert_close(shifted @ M + M @ shifted, moments.B + moments.B.T)
        assert torch.equal(M, M.T)
    ghosted, symmetric = fit("ghosted", statistics).M, fit("symmetric", statistics).M
    part = (ghosted + ghosted.T) / 2
    assert (part - symmetric).norm() > 0.05 * symmetric.norm()
    assert (X.double() @ symmetric - D).norm() < (X.double() @ part - D).norm()


def test_procrustes_is_a_rotation_that_no_other_beats_and_stays_near_i_where_nothing_is_known():
    X, D = random_states(noise=0.1)
    W = fit("procrustes", statistics_of(X, D)).M + torch.eye(8)
    torch.testing.assert_close(W.T @ W, torch.eye(8, dtype=torch.float64))
    best = (X.double() @ W - (X + D)).norm()
    g = torch.Generator().manual_seed(1)
    for _ in range(20):
        K = torch.randn(8, 8, generator=g, dtype=torch.float64) * 0.05
        assert (X.double() @ W @ torch.matrix_exp(K - K.T) - (X + D)).norm() > best
    few = X.clone()
    few[:, 4:] = 0
    open_part = fit("procrustes", statistics_of(few, torch.zeros_like(few))).M
    assert open_part.abs().max() < 1e-6


def test_low_rank_is_the_best_of_its_rank_and_no_plain_truncation():
    X, D = random_states(400, 8)
    X[:, 0] *= 50  # one loud channel: the norm of G is far from the plain norm
    D = D + X[:, :1] * 0.02
    statistics = statistics_of(X, D)
    full = fit("ghosted", statistics).M
    U, s, Vh = torch.linalg.svd(full)
    curve = fit("low-rank", statistics, rank=3).error_by_rank
    assert len(curve) == 9 and curve[0] == 1.0
    for rank in (1, 3, 8):
        fitted = fit("low-rank", statistics, rank=rank)
        assert torch.linalg.matrix_rank(fitted.M) == rank and fitted.added_parameters == 2 * 8 * rank
        left = float((X.double() @ fitted.M - D).norm() / D.norm())
        assert curve[rank] == pytest.approx(left, abs=1e-6)
        if rank < 8:
            plain = (U[:, :rank] * s[:rank]) @ Vh[:rank]
            assert left < 0.999 * float((X.double() @ plain - D).norm() / D.norm())
    # The classical closed form: the fitted values X M*, truncated by their own singular value decomposition.
    P, t, Qh = torch.linalg.svd(X.double() @ full, full_matrices=False)
    classical = (P[:, :3] * t[:3]) @ Qh[:3]
    torch.testing.assert_close(X.double() @ fit("low-rank", statistics, rank=3).M, classical, atol=1e-4, rtol=1e-4)


def test_with_a_ridge_the_curve_is_that_of_the_operators_that_are_used():
    X, D = random_states(60, 8)
    statistics = statistics_of(X, D)
    moments = statistics.moments("state")
    curve = fit("low-rank", statistics, ridge=0.3).error_by_rank
    for rank in range(1, 9):
        M = fit("low-rank", statistics, ridge=0.3, rank=rank).M
        left = residual_norm(M, moments.G, moments.B, statistics.delta_squared)
        assert curve[rank] == pytest.approx(left, abs=1e-9)
    torch.testing.assert_close(M, fit("ghosted", statistics, ridge=0.3).M)


def test_a_rank_above_the_width_is_refused_and_the_default_is_an_eighth():
    X, D = random_states(60, 8)
    statistics = statistics_of(X, D)
    with pytest.raises(InputError, match=r"^The rank 9 does not fit a model of width 8; choose one from 1 to 8\.$"):
        fit("low-rank", statistics, rank=9)
    assert fit("low-rank", statistics).factors[0].shape == (8, 1)
    assert fit("low-rank", statistics_of(X[:, :3], D[:, :3])).factors[0].shape == (3, 1)


def test_a_dead_channel_keeps_its_factor():
    X, D = random_states()
    X[:, 3] = 0
    M = fit("diagonal", statistics_of(X, D)).M
    assert M[3, 3] == 0 and M[2, 2] != 0
    nothing = statistics_of(torch.zeros(20, 4), torch.zeros(20, 4))
    for name in LADDER[1:]:
        fitted = fit(name, nothing)
        assert fitted.M.abs().max() < 1e-12, name
        assert fitted.error_by_rank is None


def test_normalised_acts_on_the_state_over_its_root_mean_square():
    g = torch.Generator().manual_seed(3)
    X = torch.randn(300, 6, generator=g) * torch.rand(300, 1, generator=g).mul(5).exp()
    phi = X / (X.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    M = torch.randn(6, 6, generator=g)
    fitted = fit("normalised", statistics_of(X, phi @ M))
    assert fitted.feature == "normalised"
    torch.testing.assert_close(fitted.M, M.double(), atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", ["ghosted", "ghosted-weighted", "normalised", "symmetric", "low-rank"])
def test_auto_takes_the_ridge_of_the_least_error_on_held_out_tokens(name):
    X, D = random_states(40, 16, noise=3.0)
    far, far_D = random_states(400, 16, noise=3.0, seed=5)
    statistics, held_out = statistics_of(X, D), statistics_of(far, far_D)
    fitted = fit(name, statistics, ridge="auto", held_out=held_out, rank=4)
    kind = {"ghosted-weighted": "state_weighted", "normalised": "normalised"}.get(name, "state")
    moments = held_out.moments(kind)

    def left(ridge):
        M = fit(name, statistics, ridge=ridge, rank=4).M
        return float((M * (moments.G @ M)).sum() - 2 * (M * moments.B).sum())

    errors = {ridge: left(ridge) for ridge in RIDGES}
    assert fitted.ridge == min(errors, key=errors.get)
    assert RIDGES[0] < fitted.ridge and errors[fitted.ridge] < errors[RIDGES[0]]
    torch.testing.assert_close(fitted.M, fit(name, statistics, ridge=fitted.ridge, rank=4).M)
    assert fitted.condition == pytest.approx(Spectrum(statistics.moments(kind).G).condition)


def test_auto_without_held_out_statistics_is_refused_and_methods_without_a_ridge_do_not_care():
    X, D = random_states()
    statistics = statistics_of(X, D)
    for name in ("ghosted", "symmetric", "low-rank"):
        with pytest.raises(InputError, match="held-out"):
            fit(name, statistics, ridge="auto")
    for name in ("none", "scalar", "diagonal", "procrustes", "linearpatch"):
        assert fit(name, statistics, ridge="auto").ridge is None


def branch_states(tokens=512, width=12, seed=0):
    g = torch.Generator().manual_seed(seed)
    X, A = torch.randn(2, tokens, width, generator=g)
    return X, A, A @ (torch.randn(width, width, generator=g) * 0.5)


def cosine_fit(X, A, D, **settings):
    statistics = statistics_of(X, D, A, names=("replaceme-cosine",))
    windows = [Boundary(x[None], p[None], a[None]) for x, p, a in zip(X.split(64), (X + D).split(64), A.split(64),
                                                                      strict=True)]  # fmt: skip
    return operators.method("replaceme-cosine").fit(statistics, Settings(read_again=lambda: iter(windows), **settings))


def test_replaceme_cosine_turns_states_and_says_by_how_much():
    X, A, D = branch_states()
    events = []
    fitted = drain(cosine_fit(X, A, D), events.append)
    before, after = (1 - F.cosine_similarity(x, X + D, dim=-1).mean() for x in (X, X + A @ fitted.M.float()))
    assert after < 0.2 * before
    assert fitted.feature == "feed_forward" and fitted.added_parameters == 0
    assert "512 of 512 tokens" in fitted.note
    assert {e.stage for e in events if isinstance(e, Progress)} == {"reading the branch", "turning states"}
    assert torch.equal(fitted.M, drain(cosine_fit(X, A, D)).M)
    assert not torch.equal(fitted.M, drain(cosine_fit(X, A, D, seed=1)).M)


def test_replaceme_cosine_never_ends_worse_than_it_began():
    X, A, D = branch_states()
    fitted = drain(cosine_fit(X, A, 0 * D))  # nothing to repair, so every step leads away
    assert fitted.M.abs().max() == 0


def test_replaceme_cosine_keeps_a_bounded_sample_and_can_be_stopped(monkeypatch):
    X, A, D = branch_states()
    monkeypatch.setattr(replaceme_cosine, "BYTES", 200 * 3 * 12 * 4)
    assert "Fitted on 192 of 512 tokens" in drain(cosine_fit(X, A, D)).note
    monkeypatch.setattr(replaceme_cosine, "BYTES", 40 * 3 * 12 * 4)
    assert "Fitted on 40 of 512 tokens" in drain(cosine_fit(X, A, D)).note
    flag = CancelFlag()
    steps = cosine_fit(X, A, D, cancel=flag)
    next(steps)
    flag.set()
    with pytest.raises(Cancelled):
        drain(steps)
    statistics = statistics_of(X, D, A, names=("replaceme-cosine",))
    with pytest.raises(InputError, match="tokens themselves"):
        fit("replaceme-cosine", statistics)
    statistics.no_feed_forward = "There is no branch."
    with pytest.raises(NotDefined, match="no branch"):
        fit("replaceme-cosine", statistics)


@pytest.mark.parametrize("name", ALL)
def test_what_is_saved_gives_back_the_operator_bit_for_bit(name, tmp_path):
    from safetensors.torch import load_file, save_file

    X, A, D = branch_states(256, 16)
    statistics = statistics_of(X, D, A)
    windows = [Boundary(X[None], (X + D)[None], A[None])]
    fitted = fit(name, statistics, ridge=1e-6, read_again=lambda: iter(windows), rank=3)
    tensors = fitted.tensors()
    assert all(t.dtype == torch.float32 and t.is_contiguous() for t in tensors.values())
    save_file(tensors, tmp_path / "operator.safetensors")
    (tmp_path / "operator.json").write_text(json.dumps(fitted.config(), allow_nan=False))
    again = Fitted.restore(load_file(tmp_path / "operator.safetensors"),
                           json.loads((tmp_path / "operator.json").read_text()))  # fmt: skip
    assert again.config() == fitted.config() and again.feature == fitted.feature
    if name == "none":
        assert again.M is None and again.operator() is None and not tensors
        return
    assert torch.equal(again.operator(), fitted.operator())
    torch.testing.assert_close(fitted.operator(), fitted.M.float(), atol=1e-5, rtol=1e-5)
    numbers = {"scalar": 1, "diagonal": 16, "linearpatch-diag": 16 * 16, "low-rank": 2 * 16 * 3}.get(name, 16 * 16)
    assert sum(t.numel() for t in tensors.values()) == numbers


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setenv("GHOSTED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("ghosted.texts.windows.HELD_OUT_LEAST", 256)  # what is tested here needs no more
    for name, value in (("texts.generated.ROWS", 8), ("texts.generated.LENGTH", 64),
                        ("operators.best.GENERATED_TOKENS", 512)):  # fmt: skip
        monkeypatch.setattr(f"ghosted.{name}", value)
    path = tmp_path / "text.txt"
    path.write_text("".join(f"Sentence {i} of a text that goes on about {i * i % 97} things. " for i in range(60)))
    return {"text": str(path), "tokens": 1024, "window": 64, "windows": 2}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_method_works_in_every_family_on_several_gaps(family, text):
    experiment = Experiment(methods=ALL, remove="0,2-3,5", ridge="auto", **text)
    space = Workspace(LoadedModel.of(TINY(family), tokenizer()))
    payload = compare_json(drain(run(experiment, space, parts=("boundary", "scores"))))
    assert payload["self_check"] is True
    for entry in payload["methods"]:
        if entry["method"].startswith("replaceme"):
            assert "block 0" in entry["not_defined"] and entry["perplexity"] is None
            continue
        assert set(entry["residual"]["gaps"]) == {"0", "2-3", "5"}, entry["method"]
        assert math.isfinite(entry["perplexity"]) and math.isfinite(entry["residual"]["held_out"])
    json.dumps(payload, allow_nan=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_method_works_in_every_family_where_a_block_stands_before_each_gap(family, text):
    experiment = Experiment(methods=ALL, remove="1,3-4", rank=5, **text)
    space = Workspace(LoadedModel.of(TINY(family), tokenizer()))
    found = drain(run(experiment, space, parts=("boundary", "decomposition", "scores")))
    payload = {entry["method"]: entry for entry in compare_json(found)["methods"]}
    assert not any("not_defined" in entry for entry in payload.values())
    assert all(math.isfinite(entry["perplexity"]) for entry in payload.values())
    first = {name: entry["residual"]["gaps"]["1"]["calibration"] for name, entry in payload.items()}
    for more, less in (("none", "scalar"), ("scalar", "diagonal"), ("diagonal", "symmetric"), ("symmetric", "ghosted"),
                       ("none", "procrustes"), ("procrustes", "ghosted"), ("low-rank", "ghosted")):  # fmt: skip
        assert first[more] >= first[less] - 1e-6, (more, less)
    curve = payload["low-rank"]["error_by_rank"]
    assert len(curve) == 33 and curve[5] == pytest.approx(first["low-rank"], abs=1e-4)
    assert payload["low-rank"]["added_parameters"] == 2 * (2 * 32 * 5)
    assert {"scalar", "procrustes", "symmetric", "low-rank"} <= set(found.decompositions)
    assert "normalised" not in found.decompositions


def test_auto_reaches_the_json_and_a_rank_above_the_width_is_refused_before_work(text):
    space = Workspace(LoadedModel.of(TINY("llama"), tokenizer()))
    experiment = Experiment(methods=("none", "scalar", "ghosted"), remove="2-3", ridge="auto", **text)
    none, scalar, ghosted = compare_json(drain(run(experiment, space, parts=("boundary",))))["methods"]
    assert ghosted["ridge"] in RIDGES and ghosted["condition"] > 1 and 0 < ghosted["dof"] <= 32
    assert "ridge" not in none and "ridge" not in scalar
    events = []
    with pytest.raises(InputError, match="rank 33"):
        drain(run(Experiment(methods=("low-rank",), remove="2-3", rank=33, **text), space), events.append)
    assert not events
    drain(run(Experiment(methods=("ghosted",), remove="2-3", rank=33, **text), space, parts=("boundary",)))
