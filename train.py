"""Train a character-level GPT: python train.py [--help]; or torchrun train.py.

The training loop is `fit` in sancho/training.py, and one step is `TrainingLoop.step` there.
"""

from sancho.command import preflight

if __name__ == "__main__":
    typed = preflight.check_training()

import math
from collections.abc import Mapping
from typing import Any

from sancho.command import cli, terminal
from sancho.command.shell import command, resume_command
from sancho.config import CorpusConfig, FolderConfig, options_of
from sancho.errors import note, say
from sancho.generate import stream_texts
from sancho.machine.device import open_device
from sancho.machine.distributed import World, process_group
from sancho.presets import TrainOptions
from sancho.run.folder import RunFolder
from sancho.run.learned import learned_corpus
from sancho.run.plan import FOLLOW_TEXT, Beginning, defaults, device_config, make_plan
from sancho.run.start import describe, describe_text, start_run
from sancho.run.state import TrainingState
from sancho.text import sources
from sancho.text.corpus import Corpus
from sancho.training import fit


def main(typed: Mapping[str, Any]) -> int:
    """Typed options → folder → device → text → plan → run → fit → result.

    Returns the exit status.
    """
    with process_group() as world:
        folder_config = options_of(FolderConfig, typed)
        with RunFolder(folder_config, writes=world.is_first) as folder:
            beginning = folder.beginning()
            device = open_device(device_config(typed, beginning))
            usual = defaults(typed, device, beginning, world.size)
            if "help" in typed:
                cli.print_help(TrainOptions(), usual | dict.fromkeys(FOLLOW_TEXT, "auto"))
                return 0
            folder.require_free()  # before a text is downloaded
            corpus = text_of(options_of(CorpusConfig, typed), folder, beginning)
            world.require_same_text(corpus.sha256)
            plan = make_plan(typed, usual, corpus, beginning, world.size)
            world.choose_gpu(device.torch_device)
            run = start_run(plan, corpus, device, beginning)
            folder.begin(run.state, run.corpus, tensorboard=plan.train.tensorboard)
            say(describe(run, folder.path, world.size))
            if world.is_first and not beginning.resumes:
                say(describe_text(run.corpus, folder.path))
            signal = train_to_end(run.state, run.corpus, folder, world)
            if world.is_first:
                show_result(folder, run.state, signal, world.size)
    return 128 + signal if signal else 0  # as shells count


def text_of(asked: CorpusConfig, folder: RunFolder, beginning: Beginning) -> Corpus:
    """Return the text that was asked for, that of the run that goes on, or Don Quijote."""
    if beginning.resumes and beginning.checkpoint and not asked.corpus:
        return learned_corpus(folder.last, beginning.checkpoint)
    return sources.corpus_of(asked.corpus or sources.BOOK, asked.encoding)


def train_to_end(state: TrainingState, corpus: Corpus, folder: RunFolder, world: World) -> int:
    """Train to the end or to a signal; show, record and save. Return the signal, or 0."""
    signal = 0
    with terminal.stop_signals(alone=world.size == 1) as received:
        reports = fit(state, corpus, world=world)
        for report in terminal.with_progress(reports, state) if world.is_first else reports:
            signal = world.max(max(received, default=0))  # all stop at the same step
            folder.record(report)
            # Saved before an evaluation, too, so that a kill during it loses no step.
            is_beside_evaluation = state.is_evaluation_due or report.val_loss is not None
            if is_beside_evaluation or folder.is_save_due or signal:
                folder.save(state)
            if signal:
                break
        folder.retry_save(state)
    return signal


def show_result(folder: RunFolder, state: TrainingState, signal: int, processes: int) -> None:
    """Print the best loss and a text by the best model; after a signal, say how to go on
    instead."""
    if signal:
        what_next = "the run is done"
        if not state.is_done:
            what_next = f"go on with: {resume_command(folder.path, processes)}"
        say(f"\nstopped and saved at step {state.progress.step}; {what_next}")
        return
    best = folder.result()
    loss = best.progress.val_loss
    if best.progress.step == state.train_config.eval_interval < state.progress.step:
        note(
            f"the first evaluation, at step {best.progress.step}, was the best: the validation "
            "part may be of another kind than the rest of the text"
        )
    if loss is not None:
        bits = loss / math.log(2)
        when = f", at step {best.progress.step:,}" if best.progress.is_evaluated else ""
        say(f"validation loss {loss:.4f} nats per character ({bits:.3f} bits){when}\n")
    model = best.build_implementation()
    prompt = best.tokenizer.encode("\n")
    steps = stream_texts(
        model, best.tokenizer, prompt, max_new_tokens=400, until_sentence=True, seed=1605
    )
    for (piece,) in steps:
        print(piece, end="", flush=True)
    is_usual = folder.path == FolderConfig().out_dir
    options = () if is_usual else ("--out_dir", folder.path)
    say(f"\n\nmore of it: {command('sample.py', *options)}")


if __name__ == "__main__":
    terminal.run_script(lambda: main(typed))
