"""What the golden files ask of every implementation; it imports no PyTorch."""

from sancho.config import SampleConfig
from sancho.generate import Model, continue_texts
from sancho.tokenizer import CharTokenizer


def assert_writes(
    model: Model, tokenizer: CharTokenizer, start: str, temperature: float, seed: int, text: str
) -> None:
    """Assert that a model goes on with a start by this text, at this temperature and seed."""
    options = {"max_new_tokens": len(text), "seed": seed}
    config = SampleConfig(temperature=temperature)
    assert continue_texts(model, tokenizer, tokenizer.encode(start), config, **options) == [text]
