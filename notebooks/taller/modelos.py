"""Los modelos que los capítulos usan antes de explicar cómo se hacen o cómo se abren.

Los GPT pequeños de la biblioteca tienen la forma más sencilla: sin la tabla de secuencias ni el atajo
que llevan los preajustes. El capítulo 8 los hace paso a paso.
"""

from typing import Any

from torch import nn

import mi_escalera
from sancho.config import DeviceConfig, ModelConfig, TrainConfig
from sancho.machine.device import choose_device
from sancho.model import GPT
from sancho.run.state import TrainingState
from sancho.text.corpus import Corpus
from sancho.training import fit


def recien_nacido(corpus: Corpus, pasos: int, ventanas: int = 16, **forma) -> TrainingState:
    """Un GPT sin entrenar, dispuesto para dar `pasos` pasos con fit, de `ventanas` trozos cada uno.

    forma: las opciones de ModelConfig que se cambian. La ventana es de 64 caracteres.
    """
    config = ModelConfig(
        vocab_size=corpus.tokenizer.vocab_size,
        block_size=64,
        ngram_size=1,
        embedding_skip=False,
        **forma,
    )
    plan = TrainConfig(
        max_iters=pasos,
        batch_size=ventanas,
        beta2=0.95,
        look_ahead=0,
        eval_interval=pasos,
        log_interval=10,
    )
    dispositivo = choose_device(DeviceConfig(device="cpu", dtype="float32"))
    return TrainingState.start(config, plan, dispositivo, corpus.train)


def entrenado(corpus: Corpus, pasos: int, ventanas: int = 16, **forma) -> tuple[GPT, float]:
    """El mismo GPT, entrenado, y su pérdida en validación, en nats por carácter."""
    estado = recien_nacido(corpus, pasos, ventanas, **forma)
    for _ in fit(estado, corpus):
        pass
    return estado.model, estado.progress.best_val_loss


def el_tuyo() -> tuple[nn.Module, Any] | None:
    """El último modelo que entrenó mi_gpt.py y su tokenizador; None, si no se ha entrenado todavía.

    De un archivo que no se puede abrir sale una línea que lo dice, y None.
    """
    if not mi_escalera.modelo_guardado().is_file():
        return None
    try:
        _, modelo, letras, _ = mi_escalera.abrir()
    except ValueError as error:
        print(error)
        return None
    return modelo, letras
