"""The command line: options in, help out, and one clear line for an error."""

import re
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path

import conftest
import pytest
from conftest import ROOT, SCRIPTS, assert_refused, option_names, run, succeed

import sancho
from sancho import checkpoint
from sancho.command import cli
from sancho.config import SampleConfig
from sancho.presets import TrainOptions

SampleOptions = SCRIPTS["sample.py"].SampleOptions


pytestmark = pytest.mark.usefixtures("project")


MODEL = ROOT / "tests" / "golden" / "mini.safetensors"


@pytest.mark.parametrize("value", ["-- Bien-aventurado=x-y", "--seed is-it"])
def test_a_value_may_begin_with_dashes(value):
    line = ["--start", value, "--stop", value, "a-b", "--stop=-c", "--top_k", "5", "--min_p=.1"]
    sampling = SampleConfig(top_k=5, min_p=0.1)
    expected = SampleOptions(start=value, stop=(value, "a-b", "-c"), sampling=sampling)
    assert cli.parse(SampleOptions(), line) == expected
    assert cli.parse(SampleOptions(), ["--start=--top_k"]).start == "--top_k"


@dataclass(frozen=True, kw_only=True)
class SeveralOptions:
    """Read some texts, one after the other."""

    corpus: tuple[str, ...] = ("quijote",)
    """The texts to read."""
    also: tuple[Path, ...] = (Path("a.txt"), Path("b.txt"))
    """Files to read after them."""
    stop: tuple[str, ...] = ()
    """Where to stop reading."""


def test_an_option_of_several_values_extends_and_shows_its_default_as_it_is_typed(capsys):
    assert cli.parse(SeveralOptions(), []) == SeveralOptions()
    line = "--corpus a b --also=x --corpus=c --also y".split()
    found = cli.parse(SeveralOptions(), line)
    assert found == SeveralOptions(corpus=("a", "b", "c"), also=(Path("x"), Path("y")))
    with pytest.raises(SystemExit):
        cli.parse(SeveralOptions(), ["--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert "The texts to read. (default: quijote) --also" in words
    assert "after them. (default: a.txt b.txt) --stop" in words
    assert words.endswith("Where to stop reading.")


OPTIONS = {
    "train.py": TrainOptions(),
    "sample.py": SampleOptions(),
    "evaluate.py": SCRIPTS["evaluate.py"].EvaluateOptions(),
}


@pytest.mark.parametrize(("name", "options"), OPTIONS.items())
def test_the_help_shows_all_options(trained, name, options):
    """It needs no run; of one that goes on it shows the options."""
    result = succeed(name, "--help")
    assert result.err == "" and "(default: )" not in result.out
    assert ("--checkpoint" in result.out) == ("The checkpoint to load" in result.out)  # inherited
    _, *lines = result.out.partition("options:")[2].splitlines()
    found = re.findall(r"^  (?:-\w, )?--(\w+)", "\n".join(lines), re.MULTILINE)
    others = ["help", "version", *(["out_dir"] if "checkpoint" in found else [])]
    assert sorted(found) == sorted([*option_names(options), *others])
    opposites = re.findall(r"^  --\w+, --no-(\w+)", result.out, re.MULTILINE)
    owners = [options, *(value for value in vars(options).values() if is_dataclass(value))]
    switches = {field.name for owner in owners for field in fields(owner) if field.type is bool}
    assert set(opposites) == switches


CONVERSIONS = {
    f"convert.py {name}": options for name, (options, _) in SCRIPTS["convert.py"].COMMANDS.items()
}


@pytest.mark.parametrize(("name", "options"), (OPTIONS | CONVERSIONS).items())
def test_every_option_has_a_sentence_and_every_script_an_opening_one(name, options):
    assert re.match(r"[A-Z].{20,}\.$", cli.summary(options)), name
    inner = [value for value in vars(options).values() if is_dataclass(value)]
    for owner in (options, *inner):
        helps = cli._helps(type(owner))
        for option in option_names(owner) - option_names_inside(owner):
            assert re.match(r"[A-Z].{9,}[.)]$", helps.get(option, "")), f"--{option}"


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_says_its_version(name):
    assert succeed(name, "--version").out == f"sancho-mini {sancho.__version__}\n"


def option_names_inside(owner: object) -> set[str]:
    names = set()
    for value in vars(owner).values():
        names |= option_names(value) if is_dataclass(value) else set()
    return names


# What is out of range in each option: test_config.py; what exports refuse: tests/convert.
BAD_LINES = [
    ("train.py", "--n_layr 4", "unknown option --n_layr; did you mean --n_layer?"),
    ("train.py", "spare", "spare belongs to no option; each value comes after its option"),
    ("train.py", "tiny.txt", "tiny.txt belongs to no option; give it as --corpus tiny.txt"),
    ("train.py", "x.safetensors", "give it as --init_from x.safetensors"),
    ("sample.py", "tiny.txt", "give it as --start FILE:tiny.txt"),
    ("evaluate.py", "x.safetensors", "give it as --checkpoint x.safetensors"),
    ("sample.py", "--start En un", "un belongs to no option; put a text with spaces in quotation"),
    ("sample.py", "—start En", "unknown option —start; did you mean --start?"),
    ("sample.py", "--prompt En", "unknown option --prompt; here it is called --start"),
    ("sample.py", "--promt En", "unknown option --promt; did you mean --start?"),
    ("train.py", "--data-dir x", "unknown option --data-dir; here it is called --corpus"),
    ("sample.py", "--steps 9", "unknown option --steps; --help lists all options"),
    ("train.py", "--min_lr 1", "unknown option --min_lr; --help lists all options"),
    ("train.py", "--no_qk_norm", "did you mean --no-qk_norm?"),
    ("train.py", "--compile True", "a switch takes no value: give --NAME to turn it on, or"),
    ("train.py", "--max_iters 3.000", "invalid int value: '3.000'; give a whole number, written"),
    ("train.py", "--init_from resume", "--resume continues a run"),
    ("train.py", "--corpus https://x/y.txt", "is an address; download it"),
    ("train.py", "--corpus=", "--corpus is ('',); it must be names or paths, none of them empty"),
    ("train.py", "--dataset tiny", "unknown option --dataset; here it is called --corpus"),
    ("train.py", "--preset midi --seed 1 --preset base", "--preset is given twice, as midi and as"),
    (
        "train.py",
        "--seed 1 --seed 2 --seed 1",
        "--seed is given twice, as 1 and as 2; give it once",
    ),
    ("train.py", "--qk_norm --no-qk_norm", "--qk_norm and --no-qk_norm are both given; leave one"),
    ("sample.py", "--start En --start=un", "--start is given twice, as En and as un; give it"),
    ("sample.py", "--checkpoint a --out_dir b", "--checkpoint a and --out_dir b are two values of"),
    ("evaluate.py", "--out_dir a --checkpoint b", "--out_dir a and --checkpoint b are two values"),
    (
        "train.py",
        "--validation x",
        "always the last tenth of the text (of several files, the last",
    ),
    ("train.py", "--save_interval 9", "train.py saves by itself every minute and at evaluations"),
    (
        "sample.py",
        "--seed abc",
        "--seed: invalid Number value: 'abc'; give a whole number",
        "random",
    ),
    ("sample.py", "--out-dir x", "unknown option --out-dir; did you mean --out_dir?"),
    ("sample.py", "--file x", "unknown option --file; here it is called --start FILE:PATH"),
    ("convert.py", "--out_dir x to-page", "unknown command --out_dir; the command comes first"),
    ("train.py", "--compile=False", "a switch takes no value: give --NAME to turn it on, or"),
    (
        "sample.py",
        "--temperature 0,5",
        "invalid float value: '0,5'; write the number with a decimal",
    ),
    ("sample.py", "--checkpoint MODEL --stop Ω", "--stop 'Ω' can never come up: the model does"),
    ("sample.py", r"--checkpoint MODEL --stop a\n", r"a line break is typed as $'\n' in bash"),
    ("sample.py", r"--checkpoint MODEL --start a\n", "at position 1", r"typed as $'\n' in bash"),
    ("train.py", "--dropout half", "--dropout: invalid float value: 'half'; give a number, as 0.5"),
    ("train.py", "--n_layer four", "--n_layer: invalid int value: 'four'; give a whole number"),
    ("train.py", "--n_layer", "--n_layer: expected one argument; give a value that begins with -"),
    ("train.py", "--resume --overwrite", "--resume is True; ", "--overwrite"),
    ("train.py", "--corpus missing.txt", "missing.txt", "does not exist"),
    ("train.py", "--corpus Tiny", "the text Tiny does not exist;", "quijote, shakespeare, tiny"),
    ("train.py", "--threads auto", "invalid int value: 'auto'; leave the option out to have"),
    ("train.py", "--corpus tiny --out_dir tiny.txt", "tiny.txt can't be written (", "choose"),
    ("train.py", "--encoding latin-1", "--encoding is 'latin-1'", "--corpus"),
    ("sample.py", "--stop=", "--stop"),
    ("sample.py", "--checkpoint data", "the folder data has no checkpoint;"),
    ("evaluate.py", "--checkpoint MODEL", "learned from golden, but corpus.txt is not beside it"),
    ("train.py", "--corpus tiny --out_dir PRETRAINED", "is the pretrained model's; choose another"),
    ("convert.py", "", "give a command; the commands are to-page, to-huggingface, to-onnx"),
    ("convert.py", "to-pag", "unknown command to-pag; did you mean to-page?"),
]


def test_the_same_value_twice_is_one_and_what_takes_several_keeps_all(project):
    (project / "a").write_text("x")
    line = "--checkpoint out/ --seed 7 --out_dir=out --seed=7 --stop a b --stop c --stop=a".split()
    found = cli.parse(SampleOptions(), line)
    assert (found.checkpoint, found.seed, found.stop) == (Path("out"), 7, ("a", "b", "c", "a"))
    twice = ["--resume", "--resume", "--no-qk_norm", "--no-qk_norm"]
    assert not cli.parse(TrainOptions(), twice).model.qk_norm
    odd = run("sample.py", "--start", "a\nb", "--start", "x" * 99)
    assert_refused(odd, "sample.py", rf"as 'a\nb' and as {'x' * 59}…; give it once")


@pytest.mark.parametrize(
    ("name", "line", "parts"),
    [(name, line, parts) for name, line, *parts in BAD_LINES],
    ids=[f"{name} {line}"[:60] for name, line, *_ in BAD_LINES],
)
def test_a_line_that_cannot_be_used(project, name, line, parts):
    before = conftest.everything(project)
    places = {"MODEL": MODEL, "PRETRAINED": checkpoint.PRETRAINED.parent}
    args = [str(places.get(word, word)) for word in line.split()]
    assert_refused(run(name, *args), name, *parts)
    assert conftest.everything(project) == before
