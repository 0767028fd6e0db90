"""Train a character-level GPT: python train.py [--help]; or torchrun train.py."""

if __name__ == "__main__":  # before NumPy and PyTorch are loaded
    from sancho.machine.threads import configure_threads

    configure_threads()

    from sancho import cli
    from sancho.config import TrainOptions

    cli.require_torch(TrainOptions())

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sancho import checkpoint, cli
from sancho.checkpoint import count_parameters
from sancho.config import FolderConfig, TrainOptions
from sancho.corpus import Corpus, open_prepared
from sancho.generate import stream_texts
from sancho.machine.device import Device, choose_device
from sancho.machine.distributed import World, process_group
from sancho.optim import learning_rate_factor
from sancho.run.folder import RunFolder
from sancho.run.plan import RunPlan, make_plan, preset_of, preset_options, typed_options
from sancho.run.state import make_state
from sancho.training import Report, TrainingState, fit

DATA = Path(__file__).resolve().parent / "data"


def main(args: Sequence[str]) -> int:
    """Plan → corpus → state → fit → report. Returns the exit status."""
    with process_group() as world:
        typed = world.broadcast_from_first(
            lambda: cli.parse_typed(TrainOptions(), args, help_defaults=preset_options)
        )
        with RunFolder(typed_options(FolderConfig, typed).out_dir) as folder:
            plan = world.broadcast_from_first(lambda: make_plan(typed, folder, DATA, world.size))
            with world.fail_together():
                device = choose_device(plan.options.run)
                world.choose_gpu(device.torch_device)
                corpus = open_prepared(plan.corpus)
                state, corpus = make_state(plan, corpus, device)
                reports = fit(state, corpus, device, world=world)  # trains as it is read
                if world.is_first:
                    open_folder(folder, plan)
                    cli.say(describe(plan, state, corpus, device, world))
            signal = train_to_end(reports, state, corpus, folder, world)
            if world.is_first:
                show_result(folder, state, signal)
    return 128 + signal if signal else 0  # as shells count


def open_folder(folder: RunFolder, plan: RunPlan) -> None:
    """Clear the folder for a new run, or drop what came after the step that one goes on from."""
    step = 0
    if plan.initial and plan.goes_on:
        step = plan.initial.progress.step
        folder.go_on(step, plan.initial.progress.evaluated_step)
    else:
        folder.begin(overwrite=plan.options.folder.overwrite)
    if plan.options.run.tensorboard:
        folder.write_events(step)


def train_to_end(
    reports: Iterator[Report],
    state: TrainingState,
    corpus: Corpus,
    folder: RunFolder,
    world: World,
) -> int:
    """Train: show, record and save; return the signal that stopped it, or 0 at its end."""
    signal = 0
    with cli.stop_signals(world) as received:
        shown = cli.with_progress(reports, state) if world.is_first else reports
        for report in shown:
            signal, is_due = world.max_over_processes(
                max(received, default=0), world.is_first and folder.is_save_due
            )
            if world.is_first:
                folder.record(report)
            if report.evaluated == 0 or report.val_loss is not None or is_due or signal:
                state.sync_losses()  # in every process: what is not finite ends them all
                if world.is_first:
                    folder.save(state, corpus, is_best=report.is_best)
            if signal:
                break
        if world.is_first:
            folder.finish(state, corpus)
    return signal


def describe(
    plan: RunPlan, state: TrainingState, corpus: Corpus, device: Device, world: World
) -> str:
    """Say in a few lines where a run begins, what is trained on what, for how long, and where."""
    model = state.model.config
    train = state.config
    shape = f"{model.n_layer} layers × {model.n_head} heads × {model.n_embd} wide"
    epochs = train.max_iters * train.characters_per_step(model) / len(corpus.train)
    lines = [
        describe_start(plan, state),
        f"{preset_of(model) or shape}: {count_parameters(model):,} parameters; "
        f"{corpus.name}: {len(corpus.train):,} characters to train on; {train.max_iters:,} steps, "
        f"{epochs:,.1f} times the text",
    ]
    if plan.decided:
        lines.append(plan.decided)
    if plan.initial:
        new = corpus.tokenizer.characters[len(plan.initial.characters) :]
        if new:
            lines.append(f"characters that the model did not know: {' '.join(map(repr, new))}")
    compiled = ", compiled" if state.run.compile else ""
    processes = f", {world.size} processes" if world.size > 1 else ""
    lines.append(f"{device}{compiled}{processes}")
    return "\n".join(lines)


def describe_start(plan: RunPlan, state: TrainingState) -> str:
    """Say whether a run is new, goes on, or is done."""
    out_dir = plan.options.folder.out_dir
    if not plan.goes_on or plan.initial is None:
        return f"a new run in {out_dir}"
    train = state.config
    step = state.progress.step
    note = ""
    if state.is_over:
        advice = f"--patience {train.patience} ended it; --patience 0"
        if step >= train.max_iters:
            advice = "a larger --max_iters"
        note = f"; it is done: {advice} goes on"
    elif step >= plan.initial.train.max_iters:
        factor = learning_rate_factor(step, train)
        note = f"; it was done: its learning rates rise again, to {factor:.2f} of the peak"
    return f"going on with the run in {out_dir} after step {step:,}{note}"


def show_result(folder: RunFolder, state: TrainingState, signal: int) -> None:
    """Say how good the best model is and let it write a little; or how to go on."""
    if signal:
        go_on = f"go on with: {cli.command('train.py', '--resume', '--out_dir', folder.path)}"
        what_next = "the run is done" if state.is_over else go_on
        cli.say(f"\nstopped and saved at step {state.progress.step}; {what_next}")
        return
    best = checkpoint.load(folder.best)
    loss = best.progress.val_loss
    if loss is not None:
        bits = loss / math.log(2)
        cli.say(f"validation loss {loss:.4f} nats per character ({bits:.3f} bits)\n")
    tokenizer = best.tokenizer
    begin = tokenizer.encode("\n")
    steps = stream_texts(best.build_numpy(), tokenizer, begin, max_new_tokens=800, seed=1605)
    for piece in until_sentence_ends((piece for (piece,) in steps), 400):
        print(piece, end="", flush=True)
    cli.say(f"\n\nmore of it: {cli.command('sample.py', '--checkpoint', folder.best)}")


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
