"""Train a character-level GPT: python train.py [--help]; or torchrun train.py."""

if __name__ == "__main__":  # before NumPy and PyTorch are loaded
    from sancho.machine.threads import configure_threads

    configure_threads()

    from sancho import cli

    cli.require_torch()

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from sancho import checkpoint, cli
from sancho.checkpoint import Checkpoint, count_parameters
from sancho.config import TrainOptions
from sancho.corpus import Corpus, open_corpus
from sancho.errors import AnotherProcessFailed
from sancho.generate import stream_texts
from sancho.machine.device import choose_device
from sancho.machine.distributed import World, process_group
from sancho.optim import learning_rate_factor
from sancho.run import setup
from sancho.run.folder import RunFolder, newest
from sancho.training import NonFiniteLoss, Report, TrainingState, fit

DATA = Path(__file__).resolve().parent / "data"


def main(args: Sequence[str]) -> int:
    """Options → corpus → state → fit → report. Returns the exit status."""
    with process_group() as world, ExitStack() as until_end:

        def choose_options() -> tuple:
            given = cli.parse_given(TrainOptions(), args, explain=setup.preset_options)
            return given, *setup.choose_options(given, world.size, until_end)

        given, options, initial = world.broadcast_from_first(choose_options)
        with world.fail_together():
            device = choose_device(options.run)
            world.use(device.torch_device)
            prepared = open_corpus(DATA, options.data) if world.is_first else None
        with world.fail_together():
            corpus = prepared or open_corpus(DATA, options.data)
            options = setup.follow_text(options, corpus, given)
            state, corpus = setup.make_state(options, initial, corpus, device)
            wants_events = options.run.tensorboard and world.is_first
            folder = RunFolder(options.folder.out_dir, tensorboard=wants_events)
            until_end.enter_context(closing(folder))
            reports = fit(state, corpus, device, world=world, compile=bool(state.run.compile))
            if world.is_first:
                until_end.enter_context(folder.lock())
                folder.start(options.folder, state.progress.step)
        if world.is_first:
            cli.say(describe(options, state, corpus, initial))
            compiled = ", compiled" if state.run.compile else ""
            processes = f", {world.size} processes" if world.size > 1 else ""
            cli.say(f"{device}{compiled}{processes}")
        try:
            signal = follow(reports, state, corpus, folder, world)
        except NonFiniteLoss:  # in every process, and one says it
            if world.is_first:
                raise
            raise AnotherProcessFailed from None
        if world.is_first:
            show_result(folder, state, signal)
        return 128 + signal if signal else 0  # as shells count


def follow(
    reports: Iterator[Report],
    state: TrainingState,
    corpus: Corpus,
    folder: RunFolder,
    world: World,
) -> int:
    """Train: show, record and save; return the signal that stopped it, or 0 at its end."""
    with cli.stop_signals(world) as received:
        shown = cli.with_progress(reports, state) if world.is_first else reports
        for report in shown:
            signal, save_is_due = world.maxima(max(received, default=0), folder.is_save_due)
            if world.is_first:
                folder.record(report)
            if report.val_loss is not None or save_is_due or signal:
                state.sync_losses()  # in every process: what is not finite ends them all
                if world.is_first:
                    folder.save(state, corpus, is_best=report.is_best)
            if signal:
                return signal
    return 0


def describe(
    options: TrainOptions, state: TrainingState, corpus: Corpus, initial: Checkpoint | None
) -> str:
    """Say in a few lines where a run begins, what is trained on what, and for how long."""
    model, train = state.model.config, state.config
    shape = f"{model.n_layer} layers × {model.n_head} heads × {model.n_embd} wide"
    epochs = train.max_iters * train.characters_per_step(model) / len(corpus.train)
    lines = [
        describe_start(options, state, initial),
        f"{setup.preset_of(model) or shape}: {count_parameters(model):,} parameters; "
        f"{corpus.name}: {len(corpus.train):,} characters to train on; {train.max_iters:,} steps, "
        f"{epochs:,.1f} times the text",
    ]
    if initial and (new := corpus.tokenizer.characters[len(initial.characters) :]):
        lines.append(f"characters that the model did not know: {' '.join(map(repr, new))}")
    return "\n".join(lines)


def describe_start(options: TrainOptions, state: TrainingState, initial: Checkpoint | None) -> str:
    """Say whether a run is new, goes on, or is done."""
    if not options.folder.resume or initial is None:
        return f"a new run in {options.folder.out_dir}"
    train, step, note = state.config, state.progress.step, ""
    if state.is_done:
        ended = step >= train.max_iters
        patience = f"--patience {train.patience} ended it; --patience 0"
        note = f"; it is done: {'a larger --max_iters' if ended else patience} goes on"
    elif step >= initial.train.max_iters:
        factor = learning_rate_factor(step, train)
        note = f"; it was done: its learning rates rise again, to {factor:.2f} of the peak"
    return f"going on with the run in {options.folder.out_dir} after step {step:,}{note}"


def show_result(folder: RunFolder, state: TrainingState, signal: int) -> None:
    """Say how good the best model is and let it write a little; or how to go on."""
    if signal:
        go_on = f"go on with: {cli.command('train.py', '--resume', '--out_dir', folder.path)}"
        what_next = "the run is done" if state.is_done else go_on
        cli.say(f"\nstopped and saved at step {state.progress.step}; {what_next}")
        return
    path = newest(folder.best)
    best = checkpoint.load(path)
    if (loss := best.progress.val_loss) is not None:
        bits = loss / math.log(2)
        cli.say(f"validation loss {loss:.4f} nats per character ({bits:.3f} bits)\n")
    tokenizer = best.tokenizer
    begin = tokenizer.encode("\n")
    steps = stream_texts(best.build_numpy(), tokenizer, begin, max_new_tokens=800, seed=1605)
    for piece in until_sentence_ends((piece for (piece,) in steps), 400):
        print(piece, end="", flush=True)
    cli.say(f"\n\nmore of it: {cli.command('sample.py', '--checkpoint', path)}")


def until_sentence_ends(pieces: Iterable[str], least: int) -> Iterator[str]:
    """Pass pieces of a text on until a sentence ends, with `least` characters or more before."""
    text = ""
    for piece in pieces:
        if len(text) >= least and piece.isspace() and re.search(r"[.!?…][»”\")]*\Z", text):
            return
        yield piece
        text += piece


if __name__ == "__main__":
    cli.exit_with(main)
