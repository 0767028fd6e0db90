"""Train a character-level GPT: python train.py [--help]."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sancho import checkpoint, cli, start
from sancho.config import DeviceConfig, RunConfig, TrainOptions
from sancho.corpus import open_corpus
from sancho.device import choose_device
from sancho.evaluate import bits_per_character
from sancho.generate import continue_text
from sancho.run_folder import RunFolder
from sancho.training import fit

DATA = Path(__file__).resolve().parent / "data"


def main(args: Sequence[str]) -> int:
    """Options → corpus → state → fit → report. Returns the exit status."""
    run = cli.parse_part(RunConfig(), args)
    device = choose_device(cli.parse_part(DeviceConfig(), args))
    source = start.find_source(run)
    options = parse(start.default_options(run, device, source), args)
    corpus = open_corpus(DATA, options.data)
    for suit in () if run.resume else (start.limit_length, start.follow_length):
        options = parse(suit(options, corpus), args)
    folder = RunFolder(run.out_dir, tensorboard=run.tensorboard)
    with folder.held():
        source = folder.load_last() if run.resume else source  # now that no other process writes
        state, corpus = start.make_state(options, source, corpus, device)
        reports = fit(state, corpus, device, compile=options.compile)
        if run.resume:
            folder.take_back(state.progress.step)
        else:
            folder.begin(replace(options, model=state.model.config))
        cli.say(f"{start.describe(state, corpus)}; {device}")
        with cli.StopSignals() as stop, cli.ProgressBar(state) as bar:
            for report in reports:
                bar.show(report)
                folder.record(report)
                if report.val_loss is not None or folder.is_save_due or stop.received:
                    folder.save(state, corpus, is_best=report.is_best)
                if stop.received:
                    break
    if stop.received:
        what_next = "the run is done" if state.is_done else f"go on with: {resume(run)}"
        cli.say(f"\nstopped and saved at step {state.progress.step}; {what_next}")
        return stop.exit_status
    show_result(folder)
    return 0


def parse(defaults: TrainOptions, args: Sequence[str]) -> TrainOptions:
    """Return the defaults with what `args` say; which run it is, is known already."""
    return replace(cli.parse(defaults, args), run=defaults.run)


def resume(run: RunConfig) -> str:
    """Return the command that goes on with a run."""
    return f"python train.py --resume --out_dir {shlex.quote(str(run.out_dir))}"


def show_result(folder: RunFolder) -> None:
    """Say how good the best model is, and let it write a little."""
    best = checkpoint.load(folder.best)
    loss = best.progress.val_loss
    bits = bits_per_character(loss)
    cli.say(f"validation loss {loss:.4f} nats per character ({bits:.3f} bits)\n")
    model, tokenizer = best.build_plain(), best.tokenizer
    for piece in continue_text(
        model, tokenizer, tokenizer.encode("\n"), max_new_tokens=400, seed=1605
    ):
        print(piece, end="", flush=True)
    cli.say(f"\n\nmore of it: python sample.py --checkpoint {shlex.quote(str(folder.best))}")


if __name__ == "__main__":
    cli.exit_with(main)
