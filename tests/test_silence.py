"""Nothing ends in silence: what fails is told with status 2, and nobody's data is replaced."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import pytest
from conftest import (
    ARGS,
    CPU,
    ROOT,
    assert_refused,
    contents,
    everything,
    folder_at,
    names_in,
    run,
    start_process,
    succeed,
    train_quietly,
    watch_reports,
)
from runs import corpus_of, start, train_config

from sancho import checkpoint, corpus, sources
from sancho.config import CorpusConfig
from sancho.errors import UserError
from sancho.files import FolderLock
from sancho.training import Batches, TrainingState, fit

TRAIN = [*ARGS, "--max_iters", "2"]
BEST, LAST = "best.safetensors", "last.safetensors"
posix = pytest.mark.skipif(sys.platform == "win32", reason="here: Windows moves no open folder")


def failing(*_: object) -> None:
    """As os.fsync, a read or a write of a disk that fails: without the name of a file."""
    raise OSError(errno.EIO, os.strerror(errno.EIO))


# --- a disk that fails ----------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EIO, errno.EINVAL, errno.ENOSPC], ids=errno.errorcode.get)
def test_a_run_that_can_save_nothing_ends_with_an_error(project, monkeypatch, number):
    def refusing(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refusing)
    done = run("train.py", *TRAIN)
    *notes, said = [line for line in done.err.splitlines() if os.strerror(number) in line]
    assert (done.status, done.out) == (2, "")
    assert notes and all(line.startswith("note: not saved (") for line in notes)
    assert said.startswith("train.py: error: the run could not be saved at step 2 (")
    assert "start the run again: nothing of it is saved" in said


def test_a_refused_save_after_others_says_how_to_go_on(project, monkeypatch):
    succeed("train.py", *TRAIN)
    watch_reports(monkeypatch, lambda report: monkeypatch.setattr(os, "fsync", failing))
    done = run("train.py", "--resume", "--max_iters", "4")
    assert done.status == 2
    assert done.err.splitlines()[-1].endswith(
        "go on with --resume --out_dir out: what was saved before is intact"
    )


@pytest.mark.parametrize(
    "line",
    [
        "prepare.py --name new --input tiny.txt",
        "convert.py to-huggingface --checkpoint MODEL --output new",
        "convert.py to-page --checkpoint MODEL --output new.html",
    ],
)
def test_a_disk_that_fails_at_a_write_is_no_reader_who_went_away(project, monkeypatch, line):
    monkeypatch.setattr(os, "fsync", failing)
    model = str(ROOT / "tests" / "golden" / "mini.safetensors")
    name, *args = line.replace("MODEL", model).split()
    done = run(name, *args)
    assert_refused(done, name, os.strerror(errno.EIO))
    assert not (project / "new").exists() and not (project / "new.html").exists()
    assert contents(project / "data" / "new") == {}


@pytest.mark.parametrize(
    "line",
    [
        "prepare.py --name new --input tiny.txt",
        "sample.py --checkpoint pretrained --start FILE:tiny.txt",
    ],
)
def test_a_disk_that_fails_at_a_read_is_no_reader_who_went_away(project, monkeypatch, line):
    read_bytes = Path.read_bytes

    def reading(path: Path) -> bytes:
        return failing() if path.name == "tiny.txt" else read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", reading)
    name, *args = line.split()
    assert_refused(run(name, *args), name, os.strerror(errno.EIO))


def test_a_text_that_fills_the_disk_is_an_error():
    model = ROOT / "tests" / "golden" / "mini.safetensors"
    code = (
        "import runpy, sys; sys.argv = ['sample.py', '--checkpoint', sys.argv[1], '--start', 'en'];"
        f"runpy.run_path({str(ROOT / 'sample.py')!r}, run_name='__main__')"
    )
    if not Path("/dev/full").exists():
        pytest.skip("here: there is no /dev/full")
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", code, model]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("sample.py: error: standard output: No space left on device")


# --- check, then lock -----------------------------------------------------------------------


def test_a_run_that_was_made_while_another_began_stays(project, monkeypatch):
    corpus_of = sources.corpus_of

    def meanwhile(*args: object) -> corpus.Corpus:
        monkeypatch.setattr(sources, "corpus_of", corpus_of)
        train_quietly(project, Path("out"), 3)
        meanwhile.made = contents(Path("out"))
        return corpus_of(*args)

    monkeypatch.setattr(sources, "corpus_of", meanwhile)
    done = run("train.py", *TRAIN)
    assert_refused(done, "train.py", "out holds a run already; go on with it (--resume)")
    assert contents(Path("out")) == meanwhile.made


def test_a_text_that_was_prepared_while_another_was_read_stays(project, monkeypatch):
    read = sources._read_file

    def meanwhile(*args: object) -> str:
        monkeypatch.setattr(sources, "_read_file", read)
        sources.prepare_files([project / "tiny.txt"], project / "data" / "new")
        return read(*args)

    monkeypatch.setattr(sources, "_read_file", meanwhile)
    done = run("prepare.py", "--name", "new", "--input", "-", stdin=b"another text\n" * 9)
    assert done.status == 2
    assert "there is a corpus in data/new already" in done.err.splitlines()[-1]
    assert b"another" not in (project / "data" / "new" / "input.txt").read_bytes()


# --- a folder that is moved, removed or replaced --------------------------------------------


@pytest.fixture
def runs(project):
    """Two runs that are done: `first` and `second`."""
    train_quietly(project, Path("first"), 3)
    train_quietly(project, Path("second"), 2, "--seed", "7")
    return project


def hold(folder: str, pipe: object) -> None:
    """Hold the lock of a folder until told to let go."""
    lock = FolderLock(folder)
    lock.acquire()
    pipe.send("held")
    pipe.recv()


def begun(out: Path) -> tuple:
    """Return the folder of a run that goes on, its state and its text."""
    folder = folder_at(out, resume=True)
    saved = folder.beginning().checkpoint
    state = TrainingState.restore(saved, saved.train_config, CPU)
    folder.begin(state.progress, tensorboard=False)
    return folder, state, corpus.read_corpus("data/tiny")


@posix
def test_a_run_whose_folder_became_another_runs_goes_on_beside_it(runs, caplog):
    """As after Ctrl+Z, a move, another run in the same folder, and fg."""
    folder, state, text = begun(Path("first"))
    Path("first").rename("moved")
    shutil.copytree("second", "first")
    before = everything(Path("first"))
    folder.save(state, text)
    folder.save(state, text)
    assert everything(Path("first")) == before
    (said,) = caplog.messages
    assert said == "note: first now belongs to another run; this run goes on in first-2"
    assert folder.path == Path("first-2") and {LAST} <= set(names_in(Path("first-2")))
    assert checkpoint.load("first-2/last.safetensors").progress.step == 3
    folder.close()


@posix
def test_a_folder_that_another_process_has_locked_meanwhile_is_left_to_it(
    runs, server_of_processes
):
    folder, state, text = begun(Path("first"))
    Path("first").rename("moved")
    ours, theirs = Pipe()
    process = start_process(hold, str(runs / "first"), theirs)
    assert ours.recv() == "held"
    folder.save(state, text)
    ours.send("let go")
    process.join(30)
    assert folder.path == Path("first-2") and LAST in names_in(Path("first-2"))
    assert names_in(Path("first")) == [".lock"]
    folder.close()


@posix
def test_a_folder_that_is_made_again_is_locked(runs):
    folder, state, text = begun(Path("first"))
    shutil.rmtree("first")
    folder.save(state, text)
    assert folder.path == Path("first")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from sancho.files import FolderLock; FolderLock('first').acquire()",
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert "first is in use by another process" in done.stderr
    folder.close()


@posix
def test_a_link_that_was_turned_to_another_run_is_left_to_it(runs, caplog):
    """As by ln -sfn second out, while the run in first goes on by the name out."""
    Path("out").symlink_to("first")
    folder, state, text = begun(Path("out"))
    Path("out").unlink()
    Path("out").symlink_to("second")
    before = everything(Path("second"))
    folder.save(state, text)
    assert everything(Path("second")) == before
    assert caplog.messages == ["note: out now belongs to another run; this run goes on in out-2"]
    assert LAST in names_in(Path("out-2"))
    folder.close()


@posix
def test_a_run_that_went_on_beside_may_have_to_move_again(runs, caplog):
    folder, state, text = begun(Path("first"))
    Path("first").rename("moved")
    shutil.copytree("second", "first")
    folder.save(state, text)
    for name in ("first", "first-2"):
        shutil.rmtree(name)
    folder.save(state, text)
    assert folder.path == Path("first-2") and LAST in names_in(folder.path)
    *_, said = caplog.messages
    assert said.startswith("note: first-2 is gone; it is made again")
    folder.close()


@posix
def test_a_lock_that_somebody_removed_drives_no_run_away(runs, caplog):
    folder, state, text = begun(Path("first"))
    Path("first/.lock").unlink()
    folder.save(state, text)
    assert folder.path == Path("first") and caplog.messages == []
    folder.close()


# --- a prepared corpus is not believed ------------------------------------------------------


def change(name: str, act) -> None:
    path = Path("data/tiny", name)
    path.write_bytes(act(path.read_bytes()))


def meta(**changes: object):
    return lambda raw: json.dumps(json.loads(raw) | changes).encode()


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("train.bin", lambda raw: bytes(len(raw))),
        ("train.bin", lambda raw: raw[:9] + b"\5" + raw[10:]),
        ("val.bin", lambda raw: b"\1\2\3" + raw[3:]),
        ("train.bin", lambda raw: raw[:-1] + b"\xff"),
        ("train.bin", lambda raw: raw[:-1]),
        ("meta.json", meta(counts=None)),
        ("meta.json", meta(counts=[1, 2])),
        ("meta.json", meta(sha256="")),
        ("meta.json", meta(sha256=None)),
        ("meta.json", meta(characters=[[]])),
        ("meta.json", lambda raw: b"[" * 100_000),
        ("meta.json", lambda raw: b"[]"),
    ],
)
@pytest.mark.parametrize("script", ["train.py", "evaluate.py"])
def test_a_prepared_corpus_that_was_changed_is_refused(project, script, name, act):
    change(name, act)
    args = TRAIN if script == "train.py" else ["--checkpoint=pretrained", "--dataset=tiny"]
    done = run(script, *args)
    assert_refused(done, script, "the corpus in ", " is damaged (", "prepare the text again")
    assert not Path("out", LAST).exists()


@pytest.mark.parametrize("name", ["train.bin", "val.bin"])
def test_in_a_corpus_too_long_to_be_counted_ids_are_looked_at_as_they_are_read(
    project, monkeypatch, name
):
    monkeypatch.setattr(corpus, "MOST_COUNTED", 10)
    change(name, lambda raw: b"\xff" * len(raw))
    done = run("train.py", *TRAIN)
    assert done.status == 2
    assert "its ids go up to 255, but it has no such character" in done.err.splitlines()[-1]


def test_the_first_id_of_a_window_is_looked_at_too():
    """No target of its window is that id."""
    text = corpus_of("En un lugar de la Mancha, de cuyo nombre no quiero acordarme.\n" * 9)
    config = train_config(batch_size=1, threads=1)
    state = start(text, config)
    batches = Batches(text.train, state.model.config.block_size, config, CPU.torch_device)
    text.train[batches.window_start(0)] = 255
    with pytest.raises(UserError, match="its ids go up to 255, but it has no such character"):
        next(fit(state, text))


def test_counting_takes_pieces(project, monkeypatch):
    monkeypatch.setattr(corpus, "PIECE", 7)
    found = corpus.read_corpus("data/tiny")
    found.check()
    assert found.counts.sum() == len(found.train) + len(found.val)
    found.train[3] = (found.train[3] + 1) % found.tokenizer.vocab_size  # a copy in memory
    with pytest.raises(UserError, match="does not occur as often"):
        found.check()


# --- best.safetensors and metrics.jsonl -----------------------------------------------------


@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_a_run_that_is_done_shows_its_result_without_the_best(project, harm):
    succeed("train.py", *TRAIN)
    best = Path("out", BEST)
    best.unlink() if harm == "gone" else best.write_bytes(best.read_bytes()[:-9])
    done = succeed("train.py", "--resume")
    assert "it is done" in done.err and "validation loss" in done.err and done.out
    assert BEST in done.err.partition("note: ")[2]
    if harm == "damaged":  # it is kept: something of it may be wanted
        assert Path("out", f"{BEST}.damaged").exists()


@pytest.mark.parametrize(
    "line",
    [
        '{"step": 1}',
        '{"step": 1, "val_loss": "low"}',
        '{"step": 0, "train_loss": 1.0, "seconds": 1}',
        '{"step": 1, "train_loss": [1], "seconds": 1e30}',
        '{"step": 1, "train_loss": -3, "seconds": -1e30}',
        '{"step": 1' + "0" * 40 + "}",
        "[" * 100_000,
    ],
)
def test_a_line_that_somebody_added_to_the_metrics_ends_no_run(project, line):
    succeed("train.py", *TRAIN)
    with open("out/metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(line + "\n")
    succeed("train.py", "--resume", "--max_iters", "3")
    assert "<svg" in Path("out/curve.svg").read_text(encoding="utf-8")


# --- memory, and Ctrl+C before anything has begun -------------------------------------------


class PanicException(BaseException):
    """As safetensors raises it, which is written in Rust."""


def test_memory_that_is_short_at_a_save_is_a_note_and_the_run_goes_on(project, monkeypatch):
    save = checkpoint.safetensors.numpy.save
    calls = []

    def saving(*args: object) -> bytes:
        calls.append(args)
        if len(calls) == 1:
            raise PanicException("capacity overflow")
        return save(*args)

    monkeypatch.setattr(checkpoint.safetensors.numpy, "save", saving)
    done = succeed("train.py", *TRAIN)
    assert "note: not saved (not enough memory); the run goes on" in done.err
    assert checkpoint.load("out/last.safetensors").progress.step == 2


def test_memory_that_is_short_at_a_load_is_one_line(project, monkeypatch):
    succeed("train.py", *TRAIN)

    def opening(*_: object) -> None:
        raise PanicException("capacity overflow")

    monkeypatch.setattr(checkpoint.safetensors, "safe_open", opening)
    assert_refused(run("sample.py"), "sample.py", "not enough memory")


INTERRUPTED = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)"


@posix
@pytest.mark.parametrize(
    "script", ["train.py", "sample.py", "evaluate.py", "convert.py", "data/prepare.py"]
)
def test_an_interrupt_while_packages_are_imported_is_one_line(tmp_path, script):
    (tmp_path / "numpy.py").write_text(INTERRUPTED)
    command = [sys.executable, ROOT / script, *(["to-page"] if script == "convert.py" else [])]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        timeout=60,
        # Where the tests run in the background, the signal is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"\ninterrupted\n")


# --- of several files each has a validation part --------------------------------------------


def prepared(texts: dict[str, str], name: str = "mine") -> corpus.Corpus:
    for file, text in texts.items():
        path = Path(name, file)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return sources.corpus_of("data", CorpusConfig(corpus=Path(name)))


def test_the_last_tenth_of_each_file_validates(project):
    found = prepared({"10.txt": "a" * 99 + "\n", "2.txt": "b" * 59 + "\n", "x.txt": "short\n"})
    decode = found.tokenizer.decode
    assert decode(found.val) == "b" * 5 + "\n" + "a" * 9 + "\n"  # 2 comes before 10
    assert decode(found.train) == "b" * 54 + "a" * 90 + "short\n"
    text = Path("data", found.name, "input.txt").read_text(encoding="utf-8")
    assert text == "b" * 59 + "\n" + "a" * 99 + "\nshort\n"
    written = json.loads(Path("data", found.name, "meta.json").read_text(encoding="utf-8"))
    assert written["split"] == "by file"
    assert written["files"] == [
        {"name": "2.txt", "characters": 60},
        {"name": "10.txt", "characters": 100},
        {"name": "x.txt", "characters": 6},
    ]


def test_one_text_that_is_cut_in_two_ways_is_two_texts(project):
    first = prepared({"1.txt": "abc\n" * 30, "2.txt": "abc\n" * 60}, "one")
    again = prepared({"1.txt": "abc\n" * 60, "2.txt": "abc\n" * 30}, "other")
    Path("other").rename("two")
    shutil.rmtree("one")
    Path("two").rename("one")
    changed = sources.corpus_of("data", CorpusConfig(corpus=Path("one")))
    assert first.name != changed.name and first.sha256 != changed.sha256 == again.sha256
    assert np.array_equal(np.sort(first.train), np.sort(again.train))


def test_the_same_text_twice_is_told(project, caplog):
    prepared({"a.txt": "una\n" * 30, "b.txt": "otra\n" * 30, "c.txt": "una\n" * 30})
    assert "note: c.txt is the same text as a.txt; it is read twice" in caplog.messages


def test_a_folder_of_the_old_rule_is_opened_as_it_is_and_said_so(project, caplog):
    found = prepared({"a.txt": "una\n" * 30, "b.txt": "otra\n" * 30})
    path = Path("data", found.name, "meta.json")
    old = json.loads(path.read_text(encoding="utf-8"))
    del old["split"], old["files"]
    path.write_text(json.dumps(old), encoding="utf-8")
    caplog.clear()
    again = corpus.read_corpus(path.parent)
    assert np.array_equal(again.val, found.val) and again.n_files == 1
    (said,) = caplog.messages
    assert "was prepared by an earlier version" in said


def test_a_run_says_what_validates_and_whether_the_first_evaluation_was_the_best(project):
    Path("mine").mkdir()
    Path("mine/a.txt").write_text("uno dos\n" * 60, encoding="utf-8")
    Path("mine/b.txt").write_text("XYZW! " * 60, encoding="utf-8")
    size = "--n_layer=1 --n_head=1 --n_embd=8 --block_size=8 --ngram_rows=16 --threads=1".split()
    options = ["--max_iters=4", "--eval_interval=2", "--learning_rate=9", "--muon_learning_rate=9"]
    done = succeed("train.py", "--corpus=mine", *size, *options)
    assert "validation part: the last tenth of each of 2 files, 84 characters" in done.err
    last = checkpoint.load("out/last.safetensors").progress
    told = "note: the first evaluation, at step 2, was the best" in done.err
    assert told == (last.evaluations_since_best > 0)
    one = succeed("train.py", *ARGS, "--max_iters=2", "--out_dir=other")
    assert "validation part: the last tenth of the text, 186 characters" in one.err
