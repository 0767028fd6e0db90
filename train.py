"""Train a character-level GPT: python train.py [--help]; or torchrun train.py."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from sancho import checkpoint, cli, start
from sancho.config import DeviceConfig, RunConfig, TrainOptions
from sancho.corpus import load, open_corpus
from sancho.device import Device, choose_device
from sancho.distributed import World, joined
from sancho.evaluate import bits_per_character as bits
from sancho.generate import continue_text
from sancho.run_folder import RunFolder
from sancho.training import fit

DATA = Path(__file__).resolve().parent / "data"


def main(args: Sequence[str]) -> int:
    """Options → corpus → state → fit → report. Returns the exit status."""
    device, signal = choose_device(cli.parse_part(DeviceConfig(), args)), 0
    with joined(device.where) as world, ExitStack() as held:
        options, source, name = world.from_first(lambda: choose(args, device, world, held))
        run = options.run
        with world.together():
            folder = RunFolder(run.out_dir, tensorboard=run.tensorboard, writes=world.is_first)
            state, corpus = start.make_state(options, source, load(DATA / name), device)
            reports = fit(state, corpus, device, world=world, compile=options.compile)
            folder.start(replace(options, model=state.model.config), state.progress.step)
        cli.say(f"{start.describe(state, corpus)}; {device}{world}", world)
        with cli.StopSignals(world) as stop, cli.ProgressBar(state, world) as bar:
            for report in reports:
                bar.show(report)
                folder.record(report)
                signal = world.highest(stop.received)
                if report.val_loss is not None or folder.is_save_due or signal:
                    folder.save(state, corpus, is_best=report.is_best)
                if signal:
                    break
        if signal and world.is_first:
            what_next = "the run is done" if state.is_done else f"go on with: {folder.to_go_on}"
            cli.say(f"\nstopped and saved at step {state.progress.step}; {what_next}")
        elif world.is_first:
            show_result(folder)
        return 128 + signal if signal else 0  # as shells count


def choose(args: Sequence[str], device: Device, world: World, held: ExitStack) -> tuple:
    """Return options, the checkpoint to start from and the corpus's name; hold the folder now."""
    run = start.after_restart(cli.parse_part(RunConfig(), args))
    source = start.find_source(run)
    options = parse(start.default_options(run, device, source, world.size), args)
    corpus = open_corpus(DATA, options.data)
    for suit in () if run.resume else (start.limit_length, start.follow_length):
        options = parse(suit(options, corpus), args)
    held.enter_context(RunFolder(run.out_dir).held())
    return options, start.find_source(run) if run.resume else source, corpus.name


def parse(defaults: TrainOptions, args: Sequence[str]) -> TrainOptions:
    """Return the defaults with what `args` say; which run it is, is known already."""
    first_time = replace(defaults, run=replace(defaults.run, resume=False))
    return replace(cli.parse(first_time, args), run=defaults.run)


def show_result(folder: RunFolder) -> None:
    """Say how good the best model is, and let it write a little."""
    best = checkpoint.load(folder.best)
    loss, tokenizer = best.progress.val_loss, best.tokenizer
    cli.say(f"validation loss {loss:.4f} nats per character ({bits(loss):.3f} bits)\n")
    begin = tokenizer.encode("\n")
    for piece in continue_text(best.build_plain(), tokenizer, begin, max_new_tokens=400, seed=1605):
        print(piece, end="", flush=True)
    cli.say(f"\n\nmore of it: {folder.to_sample}")


if __name__ == "__main__":
    cli.exit_with(main)
