from dataclasses import replace

import pytest
import torch
from conftest import TEXT, random_gpt, randomise

from sancho import checkpoint
from sancho.config import ModelConfig, TrainConfig
from sancho.corpus import Corpus
from sancho.device import Device
from sancho.errors import UserError
from sancho.model import GPT
from sancho.objective import Objective
from sancho.tokenizer import CharTokenizer
from sancho.training import TrainingState, fit

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = Device(torch.device("cpu"), torch.float32)
SMALL = ModelConfig(vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=8)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    tokenizer = CharTokenizer.from_text(TEXT)
    ids = tokenizer.encode(TEXT)
    return Corpus("hand-made", tokenizer, ids[:-200], ids[-200:], "0" * 64)


def start(corpus: Corpus, **options) -> TrainingState:
    model = replace(SMALL, vocab_size=corpus.tokenizer.vocab_size)
    return TrainingState.start(model, TrainConfig(max_iters=10, batch_size=2, **options), CPU)


def loss_by_hand(objective: Objective, ids: torch.Tensor, after: torch.Tensor, share: float):
    """Add −log p of every character that every head should name, one after another, in float64.

    ids: (B, T); after: (B, T), the character that follows each.
    """
    vectors, (B, T) = objective.model.features(ids).double(), ids.shape
    text = torch.cat((ids[:, :1], after), dim=1)  # character t + 1 of it follows place t
    heads = [objective.model.head.weight, *objective.heads]
    total = 0.0
    for j, head in enumerate(heads):
        surprises = []
        for b in range(B):
            for t in range(T):
                if t + 1 + j <= T:
                    logits = head.double() @ vectors[b, t]
                    surprises.append(logits.logsumexp(0) - logits[text[b, t + 1 + j]])
        weight = 1.0 if j == 0 else share * {1: 0.3, 2: 0.15, 3: 0.075}[j]
        if surprises:
            total += weight * sum(surprises) / len(surprises)
    return float(total)


@pytest.mark.parametrize("length", [1, 2, 3, 8])
@pytest.mark.parametrize("look_ahead", [0, 1, 3])
def test_head_j_names_the_character_j_places_after_the_next(look_ahead, length):
    objective = randomise(Objective(GPT(SMALL), look_ahead))
    text = torch.randint(11, (2, length + 1), generator=torch.Generator().manual_seed(1))
    ids, after = text[:, :-1], text[:, 1:]
    with torch.no_grad():
        loss, total = objective(ids, after, torch.tensor(0.5))
        assert total.item() == pytest.approx(loss_by_hand(objective, ids, after, 0.5), abs=1e-5)
        alone, same = objective(ids, after, None)
        assert alone.item() == same.item() == loss.item()
        expected = loss_by_hand(Objective(objective.model, 0), ids, after, 0.0)
    assert loss.item() == pytest.approx(expected, abs=1e-5)


def test_the_share_falls_from_one_to_nothing_at_seven_tenths():
    objective = Objective(random_gpt(SMALL), 2)
    shares = [objective.share_at(step, 10) for step in range(10)]
    assert [None if s is None else round(s.item(), 4) for s in shares] == [
        *[1.0, 0.8571, 0.7143, 0.5714, 0.4286, 0.2857, 0.1429],
        *[None] * 3,
    ]
    assert Objective(objective.model, 0).share_at(0, 10) is None


def test_what_is_reported_is_the_loss_of_the_model_alone(corpus):
    with_heads, without = (
        next(fit(start(corpus, look_ahead=count, log_interval=1), corpus, CPU)) for count in (2, 0)
    )
    assert with_heads.train_loss == without.train_loss


def test_look_ahead_changes_what_the_model_learns(corpus):
    ends = []
    for count in (0, 2):
        state = start(corpus, look_ahead=count)
        list(fit(state, corpus, CPU))
        ends.append(state.model.blocks[0].attention.qkv.weight)
        assert all(head.abs().max() > 0 for head in state.objective.heads)
    assert not torch.equal(*ends)


def test_heads_are_kept_to_go_on_and_left_out_of_what_writes(tmp_path, corpus):
    through = start(corpus, look_ahead=2)
    for report in fit(through, corpus, CPU):
        if report.step == 4:
            for name, kept in (("last", True), ("best", False)):
                part = through.to_checkpoint(corpus, with_optimizer=kept)
                checkpoint.save(tmp_path / name, part)
    assert b"look_ahead." not in (tmp_path / "best").read_bytes()
    last = checkpoint.load(tmp_path / "last")
    assert last.weights.keys() == checkpoint.load(tmp_path / "best").weights.keys()
    resumed = TrainingState.restore(last, last.train, CPU)
    list(fit(resumed, corpus, CPU))
    for ours, theirs in zip(
        through.objective.parameters(), resumed.objective.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("change", ["missing", "shape"])
def test_a_checkpoint_with_other_heads_is_refused(tmp_path, corpus, change):
    state = start(corpus, look_ahead=2)
    next(fit(state, corpus, CPU))
    saved = state.to_checkpoint(corpus, with_optimizer=True)
    if change == "missing":
        del saved.optimizer["look_ahead.1.weight"]
    else:
        saved.optimizer["look_ahead.1.weight"] = saved.optimizer["look_ahead.1.weight"][1:]
    checkpoint.save(tmp_path / "x", saved)
    with pytest.raises(UserError, match=r"look_ahead\.1\.weight"):
        checkpoint.load(tmp_path / "x")
