"""Train a character-level GPT: python train.py [--help]; or torchrun train.py."""

if __name__ == "__main__":  # before NumPy and PyTorch are loaded
    from sancho.machine.environment import calm_threads

    calm_threads()

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from sancho import checkpoint, cli
from sancho.checkpoint import Checkpoint
from sancho.config import RunConfig, TrainOptions, with_given
from sancho.corpus import Corpus, load, open_corpus
from sancho.generate import continue_text, until_sentence_ends
from sancho.machine.device import Device, choose_device
from sancho.machine.distributed import World, joined
from sancho.machine.shell import command
from sancho.run import setup
from sancho.run.folder import RunFolder, newest
from sancho.training import Report, TrainingState, bits_per_character, fit

DATA = Path(__file__).resolve().parent / "data"


def main(args: Sequence[str]) -> int:
    """Options → corpus → state → fit → report. Returns the exit status."""
    kept = setup.kept_options(cli.parse_part(RunConfig(), args))
    device = choose_device(cli.parse_part(kept.device, args))
    with joined(device.where) as world, ExitStack() as held:
        options, initial, name = world.broadcast_from_first(
            lambda: choose(args, kept, device, world, held)
        )
        with world.together():
            device = choose_device(options.device)  # the run's folder may be on one machine alone
            wants_events = options.run.tensorboard and world.is_first
            folder = RunFolder(options.run.out_dir, tensorboard=wants_events)
            held.enter_context(closing(folder))
            state, corpus = setup.make_state(options, initial, load(DATA / name), device)
            reports = fit(state, corpus, device, world=world, compile=options.compile)
            options = replace(options, model=state.model.config, train=state.config)
            if world.is_first:
                folder.start(options, state.progress.step)
        cli.say(f"{setup.describe(state, corpus)}; {device}{world}", world)
        if initial and (new := setup.describe_new_characters(initial, corpus)):
            cli.say(new, world)
        signal = follow(reports, state, corpus, folder, world)
        if world.is_first:
            show_result(folder, state, signal)
        return 128 + signal if signal else 0  # as shells count


def choose(
    args: Sequence[str], kept: TrainOptions, device: Device, world: World, held: ExitStack
) -> tuple[TrainOptions, Checkpoint | None, str]:
    """Return options, the initial checkpoint and the corpus's name; hold the run's folder."""
    run = setup.after_restart(cli.parse_part(kept.run, args))
    initial = setup.find_initial(run)
    setup.check_preset(run, kept.run, initial)
    defaults = setup.default_options(run, device, initial, world.size)
    defaults = replace(defaults, device=kept.device, compile=kept.compile)
    given = cli.read(defaults, args) | vars(defaults.run)  # which run it is, is known
    options = with_given(defaults, given)
    setup.check_memory(options, device)
    corpus = open_corpus(DATA, options.data)
    if not run.resume:
        options = setup.follow_text(options, corpus, given)
    held.enter_context(RunFolder(run.out_dir).held())
    if run.resume:
        initial = setup.find_initial(run)  # now that nobody else can change it
    return options, initial, corpus.name


def follow(
    reports: Iterator[Report],
    state: TrainingState,
    corpus: Corpus,
    folder: RunFolder,
    world: World,
) -> int:
    """Train: show, record and save; return the signal that stopped it, or 0 at its end."""
    signal = 0
    with cli.stop_signals(world) as received, cli.ProgressBar(state, world) as bar:
        for report in reports:
            bar.show(report)
            signal = world.all_reduce_max(max(received, default=0))
            if world.is_first:
                folder.record(report)
                if report.val_loss is not None or folder.is_save_due or signal:
                    folder.save(state, corpus, is_best=report.is_best)
            if signal:
                break
    return signal


def show_result(folder: RunFolder, state: TrainingState, signal: int) -> None:
    """Say how good the best model is and let it write a little; or how to go on."""
    if signal:
        go_on = f"go on with: {command('train.py', '--resume', '--out_dir', folder.path)}"
        what_next = "the run is done" if state.is_done else go_on
        cli.say(f"\nstopped and saved at step {state.progress.step}; {what_next}")
        return
    path = newest(folder.best)
    best = checkpoint.load(path)
    if (loss := best.progress.val_loss) is not None:
        bits = bits_per_character(loss)
        cli.say(f"validation loss {loss:.4f} nats per character ({bits:.3f} bits)\n")
    tokenizer = best.tokenizer
    begin = tokenizer.encode("\n")
    text = continue_text(best.build_numpy(), tokenizer, begin, max_new_tokens=800, seed=1605)
    for piece in until_sentence_ends(text, 400):
        print(piece, end="", flush=True)
    cli.say(f"\n\nmore of it: {command('sample.py', '--checkpoint', path)}")


if __name__ == "__main__":
    cli.exit_with(main)
