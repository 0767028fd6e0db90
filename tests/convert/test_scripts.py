"""The page's scripts are modules that can be put into one scope."""

import re

from sancho.convert.page import scripts

MODULES = [
    path.relative_to(scripts.FOLDER).as_posix()
    for folder in ("engine", "ui")
    for path in sorted((scripts.FOLDER / folder).glob("*.js"))
]
TOP_LEVEL = re.compile(
    r"^(export )?(?:async )?(?:function\*?|class|const|let) (?:(\w+|\$)|[\[{]([^\]}]*)[\]}])", re.M
)
COMMENT = re.compile(r"^ *(?://|/?\*).*\n", re.M)


def declared(module: str, *, exported: bool = False) -> list[str]:
    """Return what a module names at its top level, or what of it others may import."""
    return [
        name
        for export, one, several in TOP_LEVEL.findall(scripts.source(module))
        if export or not exported
        for name in ([one] if one else re.findall(r"\w+", several))
    ]


def test_modules_can_be_joined_to_one_script():
    names = [name for module in MODULES for name in declared(module)]
    assert len(set(names)) == len(names) > 200
    assert sorted(scripts.in_order(scripts.WORKER, scripts.START)) == MODULES
    for module in MODULES:
        text = COMMENT.sub("", scripts.source(module))
        body = scripts.EXPORT.sub("", scripts.IMPORT.sub("", text)).replace("...", " ")
        assert not re.findall(r"^\s*(?:import|export)\b.*|\bimport\(.*", body, re.M), module
        for imported, wanted in scripts.imports(module):
            assert set(wanted) <= set(declared(imported, exported=True)), (module, imported)
            assert imported.startswith("engine/") or module.startswith("ui/"), (module, imported)
            for name in wanted:
                assert re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", body), (module, name)
        if module.startswith("engine/"):
            assert not re.search(r"\b(?:document|window)\.", body), module


def test_no_module_imports_itself_by_way_of_others():
    left = {module: {imported for imported, _ in scripts.imports(module)} for module in MODULES}
    while left:
        free = [module for module, needs in left.items() if not needs & left.keys()]
        assert free, f"a circle among {sorted(left)}"
        for module in free:
            del left[module]
