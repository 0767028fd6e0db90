import pytest
import torch
from architectures import SMALL
from conftest import CPU
from runs import (
    start,
    train_config,
)

from sancho.errors import UserError
from sancho.model import GPT
from sancho.run.state import TrainingState


def test_the_number_of_threads_follows_cores_and_windows_and_is_kept(corpus, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    for asked, batch_size, expected in ((0, 6, 4), (0, 3, 3), (2, 6, 2)):
        state = start(corpus, train_config(batch_size=batch_size, threads=asked))
        saved = state.to_checkpoint(corpus)
        assert state.train_config.threads == saved.train_config.threads == expected


def test_a_model_with_weights_that_no_file_holds_is_refused_in_one_line():
    model = GPT(SMALL)
    model.temperature = torch.nn.Parameter(torch.ones(1))
    with pytest.raises(UserError, match=r"^[^\n]*temperature[^\n]*weights\.py[^\n]*$"):
        TrainingState.from_model(model, train_config(), CPU)
