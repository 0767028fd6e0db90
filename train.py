"""Train a character-level GPT: python train.py [--help]; or torchrun train.py."""

# Checks Python, packages and options, and may exit, before PyTorch is loaded.
import sancho.start  # isort: skip

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sancho import checkpoint, cli
from sancho.config import BeginOptions
from sancho.corpus import Corpus, open_corpus
from sancho.device import choose_device
from sancho.distributed import World, process_group
from sancho.errors import say
from sancho.folder import RunFolder
from sancho.generate import stream_texts
from sancho.plan import default_options, describe, initial_checkpoint, make_plan
from sancho.training import TrainingState, fit

DATA = Path(__file__).resolve().parent / "data"


def main(args: Sequence[str]) -> int:  # Python 2 quotes this line: 3.10 or later is needed
    """Options → folder → corpus → plan → fit → result. Returns the exit status."""
    with process_group() as world:
        early = cli.parse_known(BeginOptions(), args)  # they decide the defaults of all others
        with RunFolder(early.folder, writes=world.is_first) as folder:
            resumes = folder.resumes
            initial = folder.load_last() if resumes else initial_checkpoint(early.folder)
            defaults = default_options(early, initial, resumes=resumes, processes=world.size)
            options = cli.parse(defaults, args)
            if world.is_first:
                folder.claim()  # before a text is fetched: is there a run to lose?
            device = choose_device(options.device)
            world.choose_gpu(device.torch_device)
            corpus = open_corpus(DATA, options.data)
            world.require_same_text(corpus.sha256)
            plan = make_plan(
                options, corpus, device, initial, resumes=resumes, processes=world.size
            )
            if world.is_first:
                folder.make_room(plan.state.progress, tensorboard=options.train.tensorboard)
                say(describe(plan, folder.path, processes=world.size))
            signal = train_to_end(plan.state, plan.corpus, folder, world)
            if world.is_first:
                show_result(folder, plan.state, signal)
    return 128 + signal if signal else 0  # as shells count


def train_to_end(state: TrainingState, corpus: Corpus, folder: RunFolder, world: World) -> int:
    """Train: show, record and save; return the signal that came, or 0."""
    signal = 0
    with cli.stop_signals(alone=world.size == 1) as received:
        reports = fit(state, corpus, world=world)
        for report in cli.with_progress(reports, state) if world.is_first else reports:
            signal = world.max(max(received, default=0))  # all stop at the same step
            if world.is_first:
                folder.record(report)
                # Before it, too: a kill while it evaluates costs no step.
                is_beside_evaluation = state.is_evaluation_due or report.val_loss is not None
                if is_beside_evaluation or folder.is_save_due or signal:
                    folder.save(state, corpus)
            if signal:
                break
        if world.is_first:
            folder.retry_save(state, corpus)
    return signal


def show_result(folder: RunFolder, state: TrainingState, signal: int) -> None:
    """Say how good the best model is and let it write a little; after a signal, how to go on."""
    out_dir = cli.quoted(folder.path)
    if signal:
        if state.is_done:
            what_next = "the run is done"
        else:
            what_next = f"go on with: python train.py --resume --out_dir {out_dir}"
        say(f"\nstopped and saved at step {state.progress.step}; {what_next}")
        return
    best = checkpoint.load(folder.best)  # not the last model, which may be worse
    loss = best.progress.val_loss
    if loss is not None:
        bits = loss / math.log(2)
        say(f"validation loss {loss:.4f} nats per character ({bits:.3f} bits)\n")
    prompt = best.tokenizer.encode("\n")
    steps = stream_texts(
        best.build_implementation(), best.tokenizer, prompt, max_new_tokens=800, seed=1605
    )
    for piece in until_sentence_ends((piece for (piece,) in steps), 400):
        print(piece, end="", flush=True)
    say(f"\n\nmore of it: python sample.py --checkpoint {cli.quoted(folder.best)}")


def until_sentence_ends(pieces: Iterable[str], least: int) -> Iterator[str]:
    """Pass pieces of a text on; after `least` characters, until a sentence ends."""
    text = ""
    for piece in pieces:
        if len(text) >= least and piece.isspace() and re.search(r"[.!?…][»”\")]*\Z", text):
            return
        yield piece
        text += piece


if __name__ == "__main__":
    cli.exit_with(main)
