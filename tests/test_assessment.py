import io
import json
import math

import numpy as np
import pytest
import torch
from conftest import ROOT, random_gpt

from sancho import assessment
from sancho.analysis import character_losses, sliding_losses
from sancho.assessment import STAGES, as_table, assess
from sancho.config import ModelConfig
from sancho.corpus import Corpus, prepare
from sancho.evaluate import evaluate

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = {"block_size": 16, "n_layer": 1, "n_head": 1, "n_embd": 8}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    text = (ROOT / "data" / "apocrifo.txt").read_text(encoding="utf-8")[:6000]
    folder = tmp_path_factory.mktemp("data") / "tiny"
    return prepare([("tiny", io.BytesIO(text.encode()))], folder, "a test")


@pytest.fixture(scope="module")
def model(corpus):
    return random_gpt(ModelConfig(vocab_size=corpus.tokenizer.vocab_size, **SMALL))


@pytest.fixture(scope="module")
def found(corpus, model):
    patch = pytest.MonkeyPatch()
    patch.setattr(assessment, "SAMPLE_LENGTH", 60)
    *stages, last = assess(model, model, corpus)
    patch.undo()
    assert len(stages) + 1 == STAGES
    return last


@pytest.mark.parametrize("block_size", [1, 2, 5, 16])
@pytest.mark.parametrize("n", [2, 3, 9, 16, 17, 18, 40])
def test_sliding_losses_are_those_of_a_long_context(corpus, block_size, n):
    shape = SMALL | {"block_size": block_size}
    model = random_gpt(ModelConfig(vocab_size=corpus.tokenizer.vocab_size, **shape))
    ids, half = np.asarray(corpus.val[:n]), block_size // 2
    found = sliding_losses(model, ids, character_losses(model, ids))
    assert found.shape == (n - 1,)
    for i in range(n - 1):  # what is predicted is character i + 1
        place = i % block_size
        begin = i - place
        if place < half <= i:
            begin = i - half - (i - half) % block_size + half
        assert i - begin >= min(i, half)
        context = torch.from_numpy(ids[begin : i + 1].astype(np.int64))[None]
        with torch.no_grad():
            expected = -model(context)[0, -1].log_softmax(-1)[ids[i + 1]]
        assert found[i] == pytest.approx(expected.item(), abs=1e-5)


def test_losses_are_those_of_the_model_and_of_guessing(corpus, model, found):
    names = list(found.losses)
    assert found.losses[names[0]] == pytest.approx(math.log(corpus.tokenizer.vocab_size))
    expected = evaluate(model, corpus.val)
    assert found.losses["this model, in windows of 16"] == pytest.approx(expected, abs=1e-5)
    assert not any("PPMd" in name for name in names)  # that holds for one book alone


def test_parts_make_up_the_whole(corpus, found):
    n = len(corpus.val) - 1
    assert sum(share for share, _ in found.by_kind.values()) == pytest.approx(1)
    whole = sum(share * loss for share, loss in found.by_kind.values())
    assert whole == pytest.approx(found.losses["this model, after at least 8"], abs=1e-5)
    sizes = {"1": 1, "2–3": 2, "4–7": 4, "8–16": 9}
    assert found.by_place.keys() == sizes.keys()
    places = np.arange(n) % 16 + 1
    counts = [((places >= a) & (places <= b)).sum() for a, b in ((1, 1), (2, 3), (4, 7), (8, 16))]
    mean = np.dot(counts, list(found.by_place.values())) / n
    assert mean == pytest.approx(found.losses["this model, in windows of 16"], abs=1e-5)


def test_texts_of_the_model_stand_beside_the_authors(found):
    assert list(found.texts) == ["at 0.5", "at 0.8", "at 1.0", "the author"]
    author = found.texts["the author"]
    assert author.known_words > found.texts["at 1.0"].known_words
    assert author.copied == found.copied


def test_table_and_json_hold_every_figure(found):
    table, raw = as_table(found), json.loads(json.dumps(found.to_json()))
    for name, loss in found.losses.items():
        assert f"{loss:.3f}" in table and name in table
        assert raw["bits_per_character"][name] == pytest.approx(raw["losses"][name] / math.log(2))
    assert max(map(len, table.splitlines())) <= 120
