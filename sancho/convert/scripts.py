"""The scripts of the page: ES modules, which a page holds one after the other in one scope.

engine/ has what needs no document; the workers run it, too. ui/ has what one sees. Modules are
written for this assembly: they import names in braces from relative paths, and export where they
declare; both marks are taken away. The names of all of them are therefore different
(tests/page/test_scripts.py).
"""

import json
import re
from pathlib import Path

ROOM = Path(__file__).resolve().parents[1]
FOLDER = ROOM / "page" if (ROOM / "page").is_dir() else ROOM.parent / "page"
"""The folder page/ of the project, or of an installed package."""
WORKER = "engine/worker.js"
START = "ui/start.js"
IMPORT = re.compile(r"^import \{([^}]*)\} from '([^']+)';\n", re.M)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let)\b)", re.M)


def source(module: str) -> str:
    """Return the text of a module, which is named by its path in page/."""
    return (FOLDER / module).read_text(encoding="utf-8")


def table(name: str, module: str) -> dict[str, list | None]:
    """Return a table of a module: an option in each line, with a list of values or null."""
    body = re.search(rf"^const {name} = {{\n(.*?)^}};\n", source(module), re.M | re.DOTALL)
    assert body, f"{module} has no {name}"
    entries = re.findall(r"^  (\w+): (.*),\n", body[1], re.M)
    return {option: json.loads(values.replace("'", '"')) for option, values in entries}


def imports(module: str) -> list[tuple[str, list[str]]]:
    """Return the modules that a module imports from, in its order, with the names of each."""
    beside = (FOLDER / module).parent
    return [
        ((beside / path).resolve().relative_to(FOLDER).as_posix(), re.findall(r"[\w$]+", names))
        for names, path in IMPORT.findall(source(module))
    ]


def in_order(*modules: str) -> list[str]:
    """Return modules and all that they import, each after what it imports itself."""
    ordered: dict[str, None] = {}

    def visit(module: str) -> None:
        if module in ordered:
            return
        for imported, _ in imports(module):
            visit(imported)
        ordered[module] = None

    for module in modules:
        visit(module)
    return list(ordered)


def joined(modules: list[str]) -> str:
    """Return modules as one script, without the marks of modules."""
    return "".join(EXPORT.sub("", IMPORT.sub("", source(module))) for module in modules)


def of_page() -> tuple[str, str]:
    """Return the two scripts of the page: the engine, of which it makes workers, and the rest."""
    modules = in_order(WORKER, START)
    engine = [module for module in modules if module.startswith("engine/")]
    rest = [module for module in modules if module not in engine]
    engine_script, rest_script = (f'"use strict";\n{joined(part)}' for part in (engine, rest))
    return engine_script, rest_script
