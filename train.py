"""Train a character-level GPT: python train.py [--help]."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from sancho import checkpoint, cli
from sancho.config import SampleConfig, TrainOptions
from sancho.download import open_corpus
from sancho.evaluate import bits_per_character
from sancho.generate import continue_text
from sancho.run import RunFolder
from sancho.runtime import Runtime, make_runtime
from sancho.training import fit

DATA = Path(__file__).resolve().parent / "data"


def main(args: Sequence[str]) -> int:
    """Options → corpus → state → fit → report. Returns the exit status."""
    options = cli.parse_train(args)
    runtime = make_runtime(options.runtime)
    folder = RunFolder(options.run.out_dir)
    with folder.held():
        state, corpus = folder.begin(options, open_corpus(DATA, options.data), runtime)
        reports = fit(state, corpus, runtime, compile=options.runtime.compile)
        folder.open(options, state)
        cli.say(
            f"{options.run.preset}: {state.model.count_parameters():,} parameters, {runtime}; "
            f"{corpus.name}: {len(corpus.train):,} characters to train on"
        )
        with cli.StopSignals() as stop, cli.ProgressBar(state) as bar:
            for report in reports:
                bar.show(report)
                folder.record(report)
                if report.val_loss is not None or stop.received:
                    folder.save(state, corpus, is_best=report.is_best)
                if stop.received:
                    break
    if stop.received:
        what_next = "the run is done" if state.is_done else f"go on with: {resume(options)}"
        cli.say(f"\nstopped and saved at step {state.progress.step}; {what_next}")
        return stop.exit_status
    show_result(folder, runtime)
    return 0


def resume(options: TrainOptions) -> str:
    """Return the command that goes on with a run."""
    return f"python train.py --resume --out_dir {shlex.quote(str(options.run.out_dir))}"


def show_result(folder: RunFolder, runtime: Runtime) -> None:
    """Say how good the best model is, and let it write a little."""
    best = checkpoint.load(folder.best)
    loss = best.progress.val_loss
    cli.say(
        f"validation loss {loss:.4f} nats per character ({bits_per_character(loss):.3f} bits)\n"
    )
    model, tokenizer = best.build_model().to(runtime.device), best.tokenizer
    with runtime.autocast():
        for piece in continue_text(
            model, tokenizer, tokenizer.encode("\n"), SampleConfig(), max_new_tokens=400, seed=1605
        ):
            print(piece, end="", flush=True)
    cli.say(f"\n\nmore of it: python sample.py --checkpoint {shlex.quote(str(folder.best))}")


if __name__ == "__main__":
    cli.run_main(main)
