"""Lo que un programa del curso necesita para empezar: la biblioteca, y los paquetes que usa."""

import sys
from importlib.util import find_spec
from pathlib import Path

PROYECTO = Path(__file__).resolve().parents[2]


def preparar(*paquetes: str) -> None:
    """Permitir `import sancho`, y terminar con una línea si este Python no tiene los paquetes."""
    if str(PROYECTO) not in sys.path:
        sys.path.append(str(PROYECTO))
    faltan = [paquete for paquete in paquetes if find_spec(paquete) is None]
    if faltan:
        activar = (
            r".venv\Scripts\activate" if sys.platform == "win32" else "source .venv/bin/activate"
        )
        sys.exit(
            f"{Path(sys.argv[0]).name}: a este Python ({sys.executable}) le falta {' '.join(faltan)}; "
            f"activa antes el entorno del proyecto ({activar}) o créalo como dice README.es.md"
        )
