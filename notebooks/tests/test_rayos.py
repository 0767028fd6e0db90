"""What the X-rays show is what the model computes, and looking changes nothing."""

from dataclasses import replace

import pytest
import torch

from sancho.config import ModelConfig
from sancho.model import GPT
from ver.rayos import attention_weights, layer_logits, residual_streams

CONFIG = ModelConfig(
    vocab_size=11,
    block_size=8,
    n_layer=3,
    n_head=2,
    n_embd=16,
    ngram_size=4,
    ngram_rows=61,
    embedding_skip=True,
)
PLAIN = replace(
    CONFIG, norm="layernorm", position="learned", qk_norm=False, bias=True, embedding_skip=False
)
IDS = torch.randint(11, (2, 7), generator=torch.Generator().manual_seed(3))


def make_gpt(config: ModelConfig) -> GPT:
    """Return a model in evaluation mode, none of its weights zero."""
    model, generator = GPT(config), torch.Generator().manual_seed(0)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5, generator=generator)
    model.ngram_embedding.learn_vocabulary(IDS[0].repeat(2).numpy())
    return model.eval()


def block_inputs(model: GPT, streams: torch.Tensor) -> list[torch.Tensor]:
    """Return what each block reads, by the streams before it."""
    if not model.config.embedding_skip:
        return list(streams[:-1])
    return [streams[0]] + [
        streams[layer] + model.skips[layer] * streams[0] for layer in range(1, len(model.blocks))
    ]


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "rope"])
@pytest.mark.parametrize("qk_norm", [False, True])
@torch.no_grad()
def test_the_weights_explain_what_attention_answers(position, qk_norm):
    """Each head's mean of the values in these weights, projected, is the module's output.

    Seven values of eight channels each: no other weights would do.
    """
    model = make_gpt(replace(CONFIG, position=position, qk_norm=qk_norm))
    weights = attention_weights(model, IDS)
    assert weights.shape == (3, 2, 2, 7, 7)
    assert (weights.triu(1) == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, 2, 7))
    inputs = block_inputs(model, residual_streams(model, IDS))
    for block, of_block, x in zip(model.blocks, weights, inputs, strict=True):
        x = block.norm1(x)
        values = block.attention.qkv(x)[..., 32:].view(2, 7, 2, 8).transpose(1, 2)  # (B, H, T, D)
        heads = (of_block @ values).transpose(1, 2).reshape(2, 7, 16)
        answer = block.attention(x)
        torch.testing.assert_close(block.attention.proj(heads), answer, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("config", [CONFIG, PLAIN], ids=["modern", "plain"])
@torch.no_grad()
def test_streams_lead_from_the_embedding_to_the_logits(config):
    model = make_gpt(config)
    streams = residual_streams(model, IDS)
    assert streams.shape == (4, 2, 7, 16)
    torch.testing.assert_close(streams[0], model.embed(IDS))
    for block, x, after in zip(
        model.blocks, block_inputs(model, streams), streams[1:], strict=True
    ):
        torch.testing.assert_close(block(x), after)
    logits = layer_logits(model, IDS)
    torch.testing.assert_close(logits, model.head(model.norm(streams)))
    torch.testing.assert_close(logits[-1], model(IDS))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("look", [attention_weights, residual_streams, layer_logits])
def test_looking_leaves_the_model_as_it_was(look, training):
    model = make_gpt(replace(CONFIG, dropout=0.5, ngram_dropout=0.5)).train(training)
    assert torch.equal(look(model, IDS), look(model, IDS)), "dropout is off"
    assert model.training == training
    assert not any(module._forward_hooks for module in model.modules())
    with pytest.raises(ValueError, match="block_size"):
        look(model, torch.zeros(1, 9, dtype=torch.long))
    assert model.training == training
    assert not any(module._forward_hooks for module in model.modules())
