"""Las comprobaciones de mi_gpt.py: la solución pasa, y de cada pieza se rechazan cuatro errores."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import comprobaciones
import detalles
import errores
import mecanica
import pytest
import torch
from comprobaciones import EN_BLANCO, PIEZAS, POR_TITULO, motivo, sortear
from safetensors.torch import save_file

import curso
import hoja
import mi_gpt
from respuestas import OTRAS, programa

AQUI = Path(__file__).resolve().parent
ROOT = AQUI.parent.parent
SOLUCION = hoja.SOLUCION.read_text(encoding="utf-8")
BLANCA = curso.hoja_en_blanco()
TITULOS = list(POR_TITULO)


@pytest.mark.parametrize("titulo", TITULOS)
def test_la_solucion_pasa(titulo):
    assert motivo(titulo, SOLUCION) == ""


@pytest.mark.parametrize("titulo", TITULOS)
def test_en_blanco_esta_en_blanco(titulo):
    assert motivo(titulo, BLANCA) == EN_BLANCO


@pytest.mark.parametrize("titulo", TITULOS)
def test_cada_pieza_pasa_sola_con_las_demas_en_blanco(titulo):
    nombre = POR_TITULO[titulo].nombre
    sola = hoja.poner(BLANCA, nombre, hoja.leer(SOLUCION, nombre))
    assert motivo(titulo, sola) == ""


@pytest.mark.parametrize("titulo", TITULOS)
@pytest.mark.parametrize("otra", OTRAS, ids=lambda ruta: ruta.stem)
def test_una_respuesta_poco_corriente_pasa(otra, titulo):
    assert motivo(titulo, programa(otra)) == ""


def test_las_otras_tienen_todas_las_piezas_y_son_distintas():
    piezas = [hoja.trozos(texto) for texto in (SOLUCION, *(o.read_text("utf-8") for o in OTRAS))]
    for nombre in piezas[0]:
        assert len({cada[nombre] for cada in piezas}) == 3, nombre


def en_blanco(fuente: str) -> str:
    """Dar un programa sin lo que hacen sus funciones: quedan sus nombres y lo que dicen de sí."""
    arbol = ast.parse(fuente)
    del arbol.body[0]  # las primeras líneas
    for nodo in ast.walk(arbol):
        if isinstance(nodo, ast.FunctionDef):
            nodo.body = nodo.body[:1] if ast.get_docstring(nodo) else [ast.Pass()]
    return ast.unparse(arbol)


def test_la_hoja_y_la_solucion_piden_lo_mismo():
    escrita = Path(mi_gpt.__file__).read_text(encoding="utf-8")
    assert en_blanco(escrita) == en_blanco(SOLUCION)
    if all(map(hoja.esta_en_blanco, hoja.trozos(escrita).values())):
        assert escrita == BLANCA, "run: python notebooks/taller/curso.py"


def test_cada_pieza_tiene_su_sitio_en_la_hoja_y_su_capitulo():
    sitios = [linea for linea in BLANCA.splitlines() if linea.startswith("# --- ") and "(" in linea]
    debidos = {pieza.nombre: [] for pieza in PIEZAS}
    for pieza in PIEZAS:
        debidos[pieza.nombre].append(str(pieza.capitulo))
    for linea in sitios:
        nombre = linea.split()[2]
        assert all(numero in linea for numero in debidos.pop(nombre)), linea
    assert debidos == {}


LINEAL_SUELTA = "nn.Linear(forma.n_embd, forma.n_embd, bias=forma.bias)"
DEL_NORMAL = "nn.init.normal_(self.position_embedding.weight, std=0.2)"
PONER_LA_TASA = "        optimizador.tasa = tasa * min(t / 50, 1) * (1 - (t - 1) / pasos)\n"
GIRADO = "a * coseno - b * seno, a * seno + b * coseno"
SIN_LETRA = 'raise ValueError(f"{letra!r} no está entre los caracteres que conozco")'
ERRORES = (
    ("Tokenizador", "for letra in texto],", "for letra in sorted(texto)],", "codifica «roma»"),
    ("Tokenizador", SIN_LETRA, "continue", "con una letra nueva da KeyError"),
    ("Tokenizador", SIN_LETRA, 'raise ValueError("?")', "no nombra 'z'"),
    ("Tokenizador", "enumerate(caracteres)", "enumerate(sorted(caracteres))", "con «zña» codifica"),
    ("Tokenizador", "self.numero", "Tokenizador.numero", "se estorban"),
    ("Tokenizador", ", dtype=torch.long", "", "de un texto vacío"),
    ("Tokenizador", "ids.tolist()", "ids.numeros()", "se detiene con AttributeError"),
    (
        "Tokenizador",
        "self.caracteres = caracteres",
        "self.letras = caracteres",
        "no guarda los suyos en self.caracteres",
    ),
    ("Tokenizador", "dtype=torch.long", "dtype=torch.float", "codificar da números torch.float32"),
    ("Tokenizador", "in ids.tolist())", "in ids.tolist()[:-1])", "de [4, 3, 2, 1, 0] da"),
    (
        "Tokenizador",
        'return "".join(self.caracteres[i] for i in ids.tolist())',
        'return "".join(self.caracteres[i] for i in ids.tolist()) or None',
        "de ningún número sale un texto vacío",
    ),
    (
        "Tokenizador",
        'return "".join(self.caracteres[i] for i in ids.tolist())',
        'letras = dict(enumerate(self.caracteres))\n        return "".join(letras[i] for i in ids)',
        "descodificar busca con tensores",
    ),
    (
        "Tokenizador",
        '        for letra in texto:\n            if letra not in self.numero:\n                raise ValueError(f"{letra!r} no está entre los caracteres que conozco")\n        return torch.tensor([self.numero[letra] for letra in texto], dtype=torch.long)',
        "        return torch.tensor([self.caracteres.find(a) for a in texto], dtype=torch.long)",
        "'z' no se conoce: pide ValueError",
    ),
    ("Entrada", "std=0.2", "std=1", "nace con una desviación típica de 1"),
    ("Entrada", DEL_NORMAL, "pass", "position_embedding.weight nace"),
    ("Entrada", "[: ids.shape[1]]", "", "con ids de forma (3, 4), junta tensores que no encajan"),
    ("Entrada", 'if forma.position == "learned"', "if True", 'no es "learned" tiene de más'),
    (
        "Entrada",
        "        self.forma = forma\n",
        "        self._f = forma\n",
        "no guarda la forma en self.forma",
    ),
    ("Entrada", "x = x + self", "x = x + 2 * self", "en la posición t no da la fila"),
    (
        "Entrada",
        "            x = x + self.position_embedding.weight[: ids.shape[1]]\n        return x",
        "            return x + self.position_embedding.weight[: ids.shape[1]]\n        return 2 * x",
        "no da las filas de las letras",
    ),
    ("mirar_atras", ".triu(1)", ".triu(2)", "deja que la primera letra dé"),
    ("mirar_atras", ".triu(1)", ".triu(0)", "le tapa también su propia posición"),
    ("mirar_atras", " / math.sqrt(D)", "", "divide las puntuaciones entre 1.00"),
    ("mirar_atras", " / math.sqrt(D)", " / D", "divide las puntuaciones entre 6.00"),
    ("mirar_atras", "softmax(-1)", "softmax(-2)", "hace la softmax por columnas"),
    ("mirar_atras", "k.mT", "k.T", "va bien con (T, D), pero con q, k y v de forma (2, 4, 9, 8)"),
    ("mirar_atras", "pesos @ v, pesos", "pesos, pesos @ v", "devuelve primero los pesos"),
    ("mirar_atras", "return pesos @ v, pesos", "return pesos @ v", "no devuelve dos cosas"),
    (
        "mirar_atras",
        "    puntuaciones = q",
        "    q *= 2\n    puntuaciones = q",
        "cambia las q, k o v que recibe",
    ),
    (
        "mirar_atras",
        "return pesos @ v, pesos",
        "return 2 * (pesos @ v), pesos",
        "da bien los pesos, pero lo leído",
    ),
    (
        "mirar_atras",
        "return pesos @ v, pesos",
        "return pesos @ v if v.ndim == 2 else v, pesos",
        "y no con dos ejes más delante",
    ),
    ("mirar_atras", ".softmax(-1)", ".sigmoid()", "da unos pesos que suman"),
    ("mirar_atras", "q @ k.mT", "(q @ k.mT).tanh()", "los pesos no son la softmax"),
    (
        "mirar_atras",
        "return pesos @ v, pesos",
        "return pesos.detach() @ v, pesos",
        "el gradiente no la atraviesa",
    ),
    ("Atencion", "leido.transpose(1, 2).reshape", "leido.transpose(1, 2).view", "usa reshape"),
    ("Atencion", "H = self.forma.n_head", "H = 2", "da lo que con n_head = 2"),
    ("Atencion", LINEAL_SUELTA, LINEAL_SUELTA.replace("forma.bias", "True"), "con bias = False"),
    ("Atencion", "        super().__init__()\n", "", "le falta super().__init__()"),
    (
        "Atencion",
        "mirar_atras(q, k, v)",
        "mirar_atras(q, k.flip(2), v)",
        "lo que da a una letra cambia con las de después",
    ),
    ("Atencion", "mirar_atras(q, k, v)", "mirar_atras(2 * q, k, v)", "no da lo que debe"),
    ("Atencion, con girar", "if self.forma.qk_norm", "elif self.forma.qk_norm", "no iguala las"),
    ("FeedForward", "4 * forma", "2 * forma", "tiene expand.weight de forma (48, 24)"),
    (
        "FeedForward",
        "self.activacion(self.expand(x))",
        "F.dropout(self.activacion(self.expand(x)))",
        "ni dropout",
    ),
    (
        "FeedForward",
        "self.activacion(self.expand(x))",
        "2 * self.activacion(self.expand(x))",
        "no da proj(activación(expand(x)))",
    ),
    (
        "FeedForward",
        "return self.proj(self.activacion(self.expand(x)))",
        "with torch.no_grad():\n            return self.proj(self.activacion(self.expand(x)))",
        "no deja derivar",
    ),
    ("FeedForward", "self.expand(x)", "self.expand(x).detach()", "no le llega gradiente"),
    ("LayerNorm", "1e-5", "1.0", "suma una épsilon de 1,"),
    ("LayerNorm", "self.epsilon = epsilon", "self.epsilon = 1e-5", "con epsilon=0.3 suma"),
    (
        "LayerNorm",
        "varianza + self.epsilon",
        "varianza - self.epsilon",
        "suma una épsilon de -1e-05",
    ),
    ("igualar", "+ 1e-6", "- 1e-5", "da nan con números pequeños"),
    (
        "igualar",
        "keepdim=True) + 1e-6).sqrt()",
        "keepdim=True).sqrt() + 1e-5)",
        "pequeños no da lo",
    ),
    ("Entrada", "weight, std=0.2)", "weight, 0.2, 0.2)", "nace con una media de 0."),
    (
        "LayerNorm",
        "(varianza + self.epsilon).sqrt()",
        "(varianza.sqrt() + self.epsilon)",
        "fuera de la raíz",
    ),
    ("LayerNorm", "mean(-1, keepdim=True)", "mean(0, keepdim=True)", "un vector, una media"),
    ("LayerNorm", "nn.Parameter(torch.ones(C))", "torch.ones(C)", "weight no es un nn.Parameter"),
    ("LayerNorm", "x if self.bias is None else ", "", "con bias=False, hace una cuenta con None"),
    ("LayerNorm", "torch.ones(C)", "torch.zeros(C)", "weight no empieza en 1"),
    ("LayerNorm", "torch.zeros(C)", "torch.ones(C)", "bias no empieza en 0"),
    (
        "LayerNorm",
        "desvios = x - x.mean(-1, keepdim=True)",
        "x -= x.mean(-1, keepdim=True)\n        desvios = x",
        "cambia la x que recibe: resta sin tocarla",
    ),
    (
        "LayerNorm",
        "desvios.square().mean(-1",
        "desvios.square().sum(-1",
        "deja un vector con varianza",
    ),
    (
        "LayerNorm",
        "self.weight * desvios",
        "self.weight.square() * desvios",
        "no da γ por lo normalizado, más β",
    ),
    ("LayerNorm", ") if bias else None", ")", "con bias=False, self.bias no es None"),
    (
        "LayerNorm",
        "return x if self.bias is None else",
        "return 2 * x if self.bias is None else",
        "con bias=False no da lo mismo sin β",
    ),
    ("LayerNorm", " + self.epsilon", "", "no suma ninguna épsilon"),
    ("Bloque", "x = x + self.attention", "x += self.attention", "cambia el x que entra"),
    ("Bloque", "self.norm2 = hacer_norma(forma)", "self.norm2 = self.norm1", "con la misma"),
    (
        "Bloque",
        "Atencion(forma)",
        "Atencion(Forma(11, 9, forma.n_embd, n_head=2))",
        "con n_head = 4 da lo que con n_head = 2",
    ),
    ("Bloque", "hacer_norma(forma)", "LayerNorm(forma.n_embd, epsilon=1.0)", "una épsilon de 1,"),
    ("Bloque", "hacer_norma(forma)", "LayerNorm(forma.n_embd)", 'con norm = "rmsnorm"'),
    (
        "Bloque",
        "x + self.feed_forward(self.norm2(x))",
        "x + 2 * self.feed_forward(self.norm2(x))",
        "de 2 da 30, debería dar 21",
    ),
    (
        "Bloque",
        "self.attention = Atencion(forma)",
        "self.attention = Atencion(forma)\n        self.attention.register_forward_hook(lambda _, __, y: 2 * y)",
        "no da lo que el bloque de PyTorch",
    ),
    ("Gpt", "for _ in range(forma.n_layer)", "for _ in range(3)", "con n_layer = 1 tiene 3"),
    (
        "Gpt",
        "return self.head(self.norm(x))",
        "    return self.head(self.norm(x))",
        "dentro del for",
    ),
    (
        "Gpt",
        "nn.ModuleList(Bloque(forma) for _ in range(forma.n_layer))",
        "nn.ModuleList([Bloque(forma)] * forma.n_layer)",
        "sus bloques son el mismo",
    ),
    (
        "Gpt",
        "bias=False)",
        "bias=False)\n        nn.init.normal_(self.position_embedding.weight)",
        "position_embedding nace con una desviación típica de 1",
    ),
    (
        "Gpt",
        "bias=False)",
        "bias=False)\n        self.head.weight = self.token_embedding.weight",
        "comparten sus números",
    ),
    (
        "Gpt",
        "super().__init__(forma)",
        "super().__init__(forma)\n        self.forma = None",
        "no guarda la forma en self.forma",
    ),
    ("Gpt", "self.blocks", "self.bloques", "no tiene blocks"),
    (
        "Gpt",
        "nn.ModuleList(Bloque(forma) for _ in range(forma.n_layer))",
        "[Bloque(forma) for _ in range(forma.n_layer)]",
        "blocks ha de ser una nn.ModuleList",
    ),
    (
        "Gpt",
        "forma.vocab_size, bias=False)",
        "forma.vocab_size, bias=False)\n        nn.init.normal_(self.head.weight)",
        "al nacer pierde",
    ),
    (
        "Gpt",
        "super().__init__(forma)",
        'super().__init__(forma)\n        if forma.position != "learned":\n            self.position_embedding = nn.Embedding(9, 24)',
        "tiene position_embedding también si",
    ),
    (
        "Gpt",
        "Bloque(forma) for",
        "Bloque(Forma(11, 9, 24, n_head=2)) for",
        "sus bloques no son Bloque(forma)",
    ),
    (
        "Gpt",
        "return self.head(self.norm(x))",
        "return 2 * self.head(self.norm(x))",
        "no da head(norm(los bloques(la entrada)))",
    ),
    ("entropia_cruzada", "log_softmax(-1)", "softmax(-1).log()", "con logits de miles da inf"),
    ("entropia_cruzada", ".mean()", ".mean().item()", "da float"),
    (
        "entropia_cruzada",
        "objetivos[..., None]",
        "objetivos.view(-1).view(*objetivos.shape, 1)",
        "con objetivos que son un trozo de otro tensor",
    ),
    (
        "entropia_cruzada",
        "    log_p =",
        "    logits -= 1\n    log_p =",
        "cambia los logits que recibe",
    ),
    ("entropia_cruzada", ".mean()", ".median()", "la media de −ln p es"),
    (
        "entropia_cruzada",
        ".mean()",
        ".sum() / 12",
        "va bien con B = 2 y T = 6, y no con B = 1 y T = 4",
    ),
    (
        "entropia_cruzada",
        ".mean()",
        ".mean().detach()",
        "no deja derivar: usa solo operaciones de PyTorch; detach corta el",
    ),
    ("paso_de_adam", ".sqrt() + 1e-8)", " + 1e-8).sqrt()", "el 1e-8 se suma a la raíz, fuera"),
    ("paso_de_adam", "w = w - tasa * encoger * w", "g = g + encoger * w", "no hace caso"),
    ("paso_de_adam", "w = w - tasa * encoger", "w -= tasa * encoger", "cambia lo que recibe"),
    ("paso_de_adam", " + 1e-8", "", "con gradiente 0 da nan"),
    ("paso_de_adam", "return w, m, v", "return w", "no devuelve tres cosas: w, m y v"),
    ("paso_de_adam", "beta1 * m + (1 - beta1) * g", "beta1 * m + g", "m es ["),
    ("paso_de_adam", "* g**2", "* g", "v es ["),
    ("paso_de_adam", "    return w, m, v", "    w = 2 * w\n    return w, m, v", "w es ["),
    ("entrenar", "optimizador.zero_grad()", "pass", "falta zero_grad"),
    (
        "entrenar",
        "valor.backward()",
        "valor.backward()\n        optimizador.zero_grad()",
        "borra el gradiente antes de usarlo",
    ),
    (
        "entrenar",
        "entropia_cruzada(modelo(trozos[:, :-1]), trozos[:, 1:])",
        "F.cross_entropy(modelo(trozos[:, :-1]).softmax(-1).mT, trozos[:, 1:])",
        "pasa dos veces por la softmax",
    ),
    ("entrenar", "valor.backward()", "pass", "llama a backward 0 veces"),
    ("entrenar", "optimizador.step()", "pass", "falta optimizador.step()"),
    (
        "entrenar",
        "        comienzos",
        "        optimizador = Adam(modelo.parameters(), tasa)\n        comienzos",
        "olvida las memorias de Adam",
    ),
    ("entrenar", "(lote, 1))", "(1, 1)).expand(lote, 1)", "repite una ventana en todo el lote"),
    ("entrenar", PONER_LA_TASA, "", "la tasa no cambia nunca"),
    ("entrenar", "trozos[:, 1:])", "trozos[:, :-1])", "adivinar a cada letra ella misma"),
    ("entrenar", "len(ids) - ventana", "len(ids)", "lee detrás del final"),
    (
        "entrenar",
        "torch.randint(len(ids) - ventana, (lote, 1))",
        "(8 * t + torch.arange(lote)[:, None]) % 55",
        "en fila",
    ),
    ("entrenar", ".item()", "", "las pérdidas no son números"),
    ("entrenar", "Adam(modelo.parameters()", "torch.optim.Adam(modelo.parameters()", "otra cosa"),
    ("entrenar", "valor", "entropia_cruzada", "no llames así a una variable"),
    (
        "entrenar",
        "    return perdidas",
        "    return sum(perdidas)",
        "no devuelve la lista de las pérdidas",
    ),
    (
        "entrenar",
        "    return perdidas",
        "    return perdidas[::2]",
        "devuelve 100 de las 200 pérdidas",
    ),
    ("entrenar", "range(1, pasos + 1)", "range(1, pasos)", "por paso: range(1, n) acaba en n − 1"),
    ("entrenar", "valor.item()", "2 * valor.item()", "empieza con una pérdida de 8.19"),
    ("entrenar", "len(ids) - ventana", "len(ids) - ventana - 20", "nunca empieza una ventana en"),
    (
        "entrenar",
        "entropia_cruzada(modelo(trozos[:, :-1]), trozos[:, 1:])",
        "entropia_cruzada(modelo(trozos[:, :-1])[:, -1:], trozos[:, -1:])",
        "cuenta solo la última letra de cada ventana",
    ),
    (
        "entrenar",
        "entropia_cruzada(modelo(trozos[:, :-1]), trozos[:, 1:])",
        "entropia_cruzada(modelo(trozos[:, :-1])[:, 1:], trozos[:, 2:])",
        "no es la entropía cruzada de todas",
    ),
    (
        "entrenar",
        "modelo(trozos[:, :-1]), trozos[:, 1:]",
        "modelo(trozos[:, :-2]), trozos[:, 1:-1]",
        "da al modelo entradas de forma (8, 4)",
    ),
    (
        "entrenar",
        "comienzos + torch.arange(ventana + 1)",
        "comienzos // 2 + 2 * torch.arange(ventana + 1)",
        "toma letras que no van seguidas",
    ),
    (
        "entrenar",
        "        comienzos =",
        "        torch.manual_seed(1)\n        comienzos =",
        "lee siempre el mismo lote",
    ),
    (
        "entrenar",
        "        optimizador.step()",
        "        if t % 2:\n            optimizador.step()",
        "da 100 pasos de Adam",
    ),
    (
        "entrenar",
        "        optimizador.step()",
        "        optimizador.t += 1\n        optimizador.step()",
        "cuenta los pasos de Adam así: [2, 4, 6]",
    ),
    ("entrenar", "min(t / 50, 1)", "min(t / 40, 1)", "en el paso 1, con tasa 0.1 y 200 pasos"),
    ("generar", "logits / temperatura", "logits * temperatura", "multiplica los logits"),
    ("generar", "(logits / temperatura)", "logits", "no hace caso de la temperatura"),
    ("generar", "[None, -modelo.forma.block_size :]", "[None]", "y block_size es 5"),
    ("generar", "-modelo.forma.block_size :", "-1:", "de «ca» lee «a», debería leer las 2 últimas"),
    ("generar", ", generator=azar", "", "con la misma semilla"),
    ("generar", "ids[leidas:]", "ids", "devuelve también el comienzo"),
    ("generar", "ids[leidas:]", "ids[leidas - 1 :]", "con temperatura 0 sigue «ca» con"),
    ("generar", "temperatura == 0", "False", "con temperatura 0 divide entre 0"),
    (
        "generar",
        "    return tokenizador.descodificar(ids[leidas:])",
        "    return ids[leidas:]",
        "da Tensor, debería dar un texto",
    ),
    ("generar", ".manual_seed(semilla)", ".manual_seed(1605)", "con otra semilla escribe lo mismo"),
    (
        "generar",
        "torch.Generator().manual_seed(semilla)",
        "torch.manual_seed(semilla)",
        "mueve el azar de PyTorch",
    ),
    ("generar", "temperatura == 0", "True", "elige siempre la más probable"),
    (
        "generar",
        "    for _ in range(cuantas):\n",
        "    for _ in range(cuantas):\n        azar.manual_seed(semilla)\n",
        "saca siempre el mismo número al azar",
    ),
    ("generar", "ids[None, -", "ids[-", "da a leer ids de forma"),
    ("girar", GIRADO, "a * coseno + b * seno, a * seno + b * coseno", "cambia la longitud"),
    ("girar", "T, D = x.shape[-2:]", "B, H, T, D = x.shape", "con un solo texto"),
    ("girar", "    T, D", "    x += 0 * x + 1\n    T, D", "cambia la x que recibe"),
    ("girar", "torch.arange(T,", "0.1 + torch.arange(T,", "gira la posición 0, que no se mueve"),
    ("girar", "10000.0", "1000.0", "no gira cada pareja t / 10000^(2j / D)"),
    (
        "girar",
        "    return girado",
        "    if x.ndim == 2:\n        return x\n    return girado",
        "va mal con un solo texto",
    ),
    ("igualar", "1e-6", "1e-5", "suma una épsilon de 1e-05"),
    (
        "igualar",
        "(x.square().mean(-1, keepdim=True) + 1e-6).sqrt()",
        "(x.square().mean(-1, keepdim=True).sqrt() + 1e-6)",
        "fuera de la raíz",
    ),
    ("igualar", "x.square()", "(x - x.mean(-1, keepdim=True)).square()", "desviación típica"),
    ("igualar", "    return x /", "    x += 1\n    return x /", "cambia la x que recibe"),
    ("igualar", ").sqrt()", ").sqrt() * 2", "no es la RMSNorm de cada vector"),
    (
        "igualar",
        "    return x / (x.square().mean(-1, keepdim=True)",
        "    return x / (x.square().sum(-1, keepdim=True) / 6",
        "y no con (3, 10)",
    ),
    ("guardar", 'f"model.{nombre}"', "nombre", 'le falta "model." delante'),
    ("guardar", "json.dumps(contenido)", "str(contenido)", "no está en JSON"),
    ("guardar", "asdict(modelo.forma)", "modelo.forma", "JSON no sabe guardar un objeto Forma"),
    ("guardar", "asdict(modelo.forma)", "str(modelo.forma)", "debería haber un diccionario"),
    ("guardar", "p.detach()", "p.detach().half()", "guarda model.token_embedding.weight en"),
    ("guardar", ', {"content": json.dumps(contenido)}', "", 'en su metadata falta "content"'),
    (
        "guardar",
        "json.dumps(contenido)",
        'json.dumps("hola")',
        'en "content" no hay un diccionario',
    ),
    (
        "guardar",
        "tokenizador.caracteres,",
        "list(tokenizador.caracteres),",
        'en "characters" debería haber un texto',
    ),
    (
        "guardar",
        "tokenizador.caracteres,",
        "tokenizador.caracteres[::-1],",
        'en "characters" hay otras letras',
    ),
    (
        "guardar",
        "save_file(tensores, ruta,",
        'save_file(tensores, f"{ruta}2",',
        "no escribe el archivo en la ruta dada",
    ),
    (
        "guardar",
        'f"model.{nombre}": p.detach()',
        'f"modelo.{nombre}": p.detach()',
        "no guarda model.token_embedding.weight",
    ),
    ("guardar", "p.detach()", "p.detach() + 1", "guarda otros números"),
    ("guardar", "asdict(modelo.forma)}", '{"n_embd": 24}}', 'en "model" falta'),
    (
        "guardar",
        "asdict(modelo.forma)}",
        'asdict(modelo.forma) | {"n_embd": 9}}',
        'en "model", n_embd es 9, debería ser 24',
    ),
    ("abrir_caja", ".eval()", "", "modo de entrenamiento"),
    ("abrir_caja", ' or suya.get("embedding_skip")', "", "abre un archivo con embedding_skip"),
    ("abrir_caja", 'suya.get("ngram_size", 1)', 'suya["ngram_size"]', "con un archivo de guardar"),
    ("abrir_caja", 'f"model.{nombre}"', "nombre", "pide al archivo el tensor"),
    (
        "abrir_caja",
        "{campo: suya[campo] for campo in Forma.__annotations__}",
        "suya",
        "da a Forma un `dropout`",
    ),
    ("abrir_caja", "torch.no_grad()", "torch.enable_grad()", "fuera de torch.no_grad(): va dentro"),
    ("abrir_caja", "ValueError", "RuntimeError", "pide ValueError"),
    (
        "abrir_caja",
        'suya.get("ngram_size", 1) > 1',
        'suya.get("ngram_size", 1) > 0',
        "rechaza un archivo sin tabla",
    ),
    (
        "abrir_caja",
        'return modelo.eval(), Tokenizador(contenido["characters"])',
        "return modelo.eval()",
        "no devuelve dos cosas: el modelo",
    ),
    (
        "abrir_caja",
        'return modelo.eval(), Tokenizador(contenido["characters"])',
        'return Tokenizador(contenido["characters"]), modelo.eval()',
        "devuelve primero el tokenizador",
    ),
    (
        "abrir_caja",
        "return modelo.eval(),",
        "return dict(modelo.named_parameters()),",
        "devuelve dict, y no el modelo",
    ),
    (
        "abrir_caja",
        'Tokenizador(contenido["characters"])',
        'contenido["characters"]',
        "devuelve str, y no el tokenizador",
    ),
    (
        "abrir_caja",
        'Tokenizador(contenido["characters"])',
        'Tokenizador("abc")',
        "el tokenizador tiene otras letras: 'abc'",
    ),
    (
        "abrir_caja",
        "modelo = Gpt(forma)",
        'modelo = Gpt(Forma(**(vars(forma) | {"n_layer": 1})))',
        "abre un modelo con n_layer = 1",
    ),
    ("abrir_caja", "return modelo.eval()", "return modelo.bfloat16().eval()", "pide .float()"),
    ("abrir_caja", ".float())", ".float() + 1)", "no tiene los números del archivo"),
    (
        "abrir_gpt2",
        "suyos[nombre].T if es_matriz else suyos[nombre]",
        "suyos[nombre]",
        "no traspone",
    ),
    ("abrir_gpt2", "bloques, n_head", "bloques, 12", "hace 3 bloques de 12 cabezas"),
    ("abrir_gpt2", '.removeprefix("transformer.")', "", 'con "transformer." delante'),
    ("abrir_gpt2", "suyos[nombre].T if", "suyos[nombre].view(p.shape) if", "no tiene los números"),
    (
        "abrir_gpt2",
        "            for mia, suya",
        '            if nombre.startswith("head"):\n                continue\n            for mia, suya',
        "head.weight no tiene los números de wte.weight",
    ),
    (
        "abrir_gpt2",
        "    suyos = {",
        "    for p in parametros.values():\n        p += 1\n    suyos = {",
        "cambia los parámetros que recibe",
    ),
    (
        "abrir_gpt2",
        "    return modelo.eval()",
        "    return dict(modelo.named_parameters())",
        "da dict, debería dar el modelo",
    ),
    (
        "abrir_gpt2",
        "    return modelo.eval()",
        "    modelo.forma = Forma(V, 10, C, bloques, n_head)\n    return modelo.eval()",
        "hace una ventana de 10, son 12",
    ),
    (
        "abrir_gpt2",
        "    return modelo.eval()",
        "    modelo.head.weight = modelo.token_embedding.weight\n    return modelo.eval()",
        "ata head a token_embedding",
    ),
)


DE_LA_TABLA = [
    (titulo, frase, cambios)
    for titulo, filas in errores.ERRORES.items()
    for frase, *cambios in filas
]


def test_hay_cuatro_errores_de_cada_pieza():
    todos = [error[0] for error in (*ERRORES, *DE_LA_TABLA)]
    veces = {titulo: todos.count(titulo) for titulo in TITULOS}
    assert min(veces.values()) >= 4, veces


def fallo_de(titulo: str, cambios: list[errores.Cambio]) -> str:
    """Dar lo que se dice de la solución con unos cambios en una pieza."""
    nombre = POR_TITULO[titulo].nombre
    escrita = hoja.leer(SOLUCION, nombre)
    for bien, mal in cambios:
        assert bien in escrita
        escrita = escrita.replace(bien, mal)
    return motivo(titulo, hoja.poner(SOLUCION, nombre, escrita), buscar=False)


@pytest.mark.parametrize(("titulo", "bien", "mal", "frase"), ERRORES)
def test_un_error_se_nombra(titulo, bien, mal, frase):
    fallo = fallo_de(titulo, [(bien, mal)])
    assert fallo and frase in fallo, fallo
    assert "\n" not in fallo


@pytest.mark.parametrize(("titulo", "frase", "cambios"), DE_LA_TABLA)
def test_cada_error_de_la_tabla_se_nombra_a_si_mismo(titulo, frase, cambios):
    assert fallo_de(titulo, cambios).startswith(frase)


def test_generar_puede_contar_las_letras_del_comienzo():
    escrito = hoja.leer(SOLUCION, "generar").replace("len(ids)", "len(comienzo)")
    assert motivo("generar", hoja.poner(SOLUCION, "generar", escrito)) == ""


MECANICA = (
    # Lo que queda de la hoja en blanco.
    ("Gpt", "self.norm(x))", "self.norm(x))\n        raise NotImplementedError", "queda un `raise"),
    (
        "igualar",
        "    return",
        "    raise NotImplementedError\n    return",
        "queda un `raise NotImplementedError` en igualar: bórralo",
    ),
    (
        "Tokenizador",
        'return "".join(self.caracteres[i] for i in ids.tolist())',
        "raise NotImplementedError",
        "falta escribir descodificar, en la línea",
    ),
    ("igualar", "def igualar", "def iguala", "se define iguala: ha de llamarse igualar"),
    # self.
    ("Bloque", "self.norm1(x)", "norm1(x)", "usa `norm1` sin self.: es self.norm1"),
    ("Atencion", "self.qkv(x)", "qkv(x)", "usa `qkv` sin self.: es self.qkv"),
    ("Gpt", "in self.blocks", "in blocks", "usa `blocks` sin self.: es self.blocks"),
    ("LayerNorm", "self.epsilon)", "epsilon)", "usa `epsilon` sin self.: es self.epsilon"),
    (
        "FeedForward",
        "self.activacion(self.expand(x))",
        "ACTIVACIONES[forma.activation](self.expand(x))",
        "`forma` solo se conoce en __init__",
    ),
    ("Bloque", "self.norm1 = ", "norm1 = ", "en __init__, a `norm1 = …` le falta self."),
    ("Bloque", "__init__(self, forma", "_init_(self, forma", "el método `_init_` ha de llamarse"),
    ("Atencion", "forward(self", "foward(self", "el método `foward` ha de llamarse `forward`"),
    (
        "FeedForward",
        "forward(self, x",
        "forward(x",
        "a forward le falta self: def forward(self, x)",
    ),
    ("Bloque", "self.norm1(x)", "self.norm1(self, x)", "self.norm1 ya lleva self delante"),
    ("Bloque", "super().__init__", "super.__init__", "super lleva paréntesis"),
    (
        "FeedForward",
        "    def forward",
        "        def forward",
        "la sangría no cuadra",
    ),
    # La clase, y uno hecho con ella.
    ("Bloque", "= Atencion(forma)", "= Atencion", "en self.attention guarda Atencion, y no uno"),
    ("Bloque", "= hacer_norma(forma)", "= hacer_norma", "en self.norm1 guarda hacer_norma, y no"),
    ("Bloque", "self.attention(self", "Atencion(self", "da un tensor a una clase que espera"),
    (
        "Gpt",
        "Bloque(forma) for",
        "Bloque for",
        "pone en una nn.ModuleList algo que no es un módulo",
    ),
    (
        "Gpt",
        "for bloque in self.blocks:\n            x = bloque(x)",
        "x = self.blocks(x)",
        "llama a una nn.ModuleList, que es una lista: recórrela con for",
    ),
    (
        "LayerNorm",
        "if self.bias is None",
        "if self.bias",
        "pregunta si un tensor de varios números",
    ),
    # Lo que se da y lo que se pierde.
    (
        "Gpt",
        "return self.head(self.norm(x))",
        "print(self.head(self.norm(x)))",
        "¿print en vez de return en forward?",
    ),
    ("FeedForward", "return self.proj", "self.proj", "a forward le falta el return"),
    (
        "mirar_atras",
        "    pesos = puntuaciones.masked_fill(futuro, -math.inf).softmax(-1)",
        "    puntuaciones.masked_fill(futuro, -math.inf)\n    pesos = puntuaciones.softmax(-1)",
        "no tapa el futuro; masked_fill no cambia puntuaciones: da otro",
    ),
    (
        "generar",
        "ids = torch.cat((ids, nueva))",
        "ids = ids.append(nueva)",
        "append cambia una lista",
    ),
    ("generar", "ids = torch.cat((ids, nueva))", "ids.append(nueva)", "un tensor no tiene append"),
    (
        "entrenar",
        "perdidas.append(valor.item())",
        "perdidas = perdidas.append(valor.item())",
        "quita «perdidas =» de delante",
    ),
    ("entrenar", "valor.backward()", "valor.backward", "no llama a nada: le faltan los paréntesis"),
    ("entrenar", "optimizador.tasa = ", "optimizador.tasa == ", "== compara y no guarda"),
    (
        "Bloque",
        "= Atencion(forma)",
        "= Atencion(forma),",
        "la coma del final hace de self.attention",
    ),
    ("Atencion", "3, H, C // H)", "3, H, C / H)", "/ lleva decimales, // no"),
    ("LayerNorm", "desvios.square()", "desvios.square", "sin llamarla: faltan sus paréntesis"),
    ("Atencion", "B, T, C = x.shape", "B, T, C = x.size", "sin llamarla: faltan sus paréntesis"),
    ("Atencion", "return self.proj(", "return nn.Linear(", "en forward hace otra nn.Linear"),
    (
        "Bloque",
        "x = x + self.attention",
        "x + self.attention",
        "hace una cuenta y no guarda lo que",
    ),
    ("Gpt", "super().forward(ids)", "super(ids)", "super() va sin nada entre sus paréntesis"),
    ("Gpt", "range(forma.n_layer)", "forma.n_layer", "recorre un número: ¿falta range(…)?"),
    ("entropia_cruzada", ".mean()", ".mean()\n\u00a0   x = 2", "U+00A0"),
    ("Tokenizador", "raise ValueError(f", "return ValueError(f", "es raise, y no return"),
    ("Entrada", "ids.shape[1]", "ids.shape(1)", "shape va con corchetes"),
    (
        "Entrada",
        "token_embedding(ids)",
        "token_embedding[ids]",
        "es una capa: para usarla se llama",
    ),
    ("mirar_atras", "-math.inf", "'-inf'", "da a masked_fill lo que no espera: (Tensor, str)"),
    ("Atencion", "self.qkv(x).view", "self.qkv.view", "Linear es una capa: para usarla se llama"),
    ("Atencion", "leido, _ = mirar", "leido = mirar", "pide transpose a varias cosas juntas"),
    ("Atencion", "B, T, C = x.shape", "B, T, C == x.shape", "== compara y no guarda"),
    ("FeedForward", "4 * forma", "4 forma", "¿falta una coma, o un signo como *?"),
    (
        "FeedForward",
        "nn.Linear(forma.n_embd, 4",
        "nn.linear(forma.n_embd, 4",
        "torch.nn no tiene `linear`: ¿es `Linear`?",
    ),
    ("Bloque", "class Bloque(nn.Module)", "class Bloque", "class Bloque(nn.Module)"),
    ("Gpt", "for bloque in self.blocks", "for self.blocks in bloque", "el for va del revés"),
    ("Gpt", "            x = bloque(x)", "            return bloque(x)", "en la primera vuelta"),
    ("entropia_cruzada", "objetivos[..., None]", "objetivos", "¿falta [..., None]?"),
    ("paso_de_adam", "g**2", "g^2", "^ no es una potencia"),
    ("entrenar", "valor.backward()", "valor.item().backward()", ".item() va al final"),
    ("entrenar", "perdidas = []", "perdidas = list", "en perdidas guarda list, y no uno hecho"),
    ("entrenar", "    return perdidas", "        return perdidas", "en la primera vuelta"),
    # Lo que se pega a un signo, lo que se escribe dos veces y lo que no se ejecuta.
    ("Entrada", "x = x + self", "x =+ self", "=+ no suma: para eso es +="),
    ("paso_de_adam", "w = w - tasa * encoger * w", "w =- tasa * encoger * w", "=- no resta"),
    ("paso_de_adam", "return w, m, v", "return {w, m, v}", "las llaves hacen un conjunto"),
    (
        "igualar",
        "    return",
        "    return x\n\n\ndef igualar(x):\n    return 2 *",
        "igualar está escrita dos veces, y vale la última",
    ),
    (
        "Bloque",
        "x = x + self.attention(self.norm1(x))",
        "return x + self.attention(self.norm1(x))",
        "lo que va detrás de un return no se ejecuta",
    ),
    (
        "Entrada",
        "        return x",
        "            return x",
        "el return está dentro del if: si no se entra en él, no se devuelve nada",
    ),
    (
        "Entrada",
        "        x = self.token_embedding(ids)  # (B, T, C)\n        if self",
        '        if self.forma.position == "learned":\n            x = self.token_embedding(ids)\n        if self',
        "`x` no tiene valor si no se entra en el if que se lo da",
    ),
    # Los nombres.
    ("Entrada", "self.forma = forma", "self.forma = Forma", "guarda la clase Forma, y no la forma"),
    ("generar", "[None, -modelo.forma", "[None, -Forma", "pide block_size a la clase Forma"),
    ("generar", "tokenizador.codificar", "Tokenizador.codificar", "de la clase Tokenizador"),
    ("mirar_atras", "-math.inf", "-inf", 'usa `inf`: en Python es float("inf")'),
    ("LayerNorm", "keepdim=True", "keepdim=true", "usa `true`: en Python es True"),
    ("mirar_atras", "math.sqrt", "sqrt", "usa `sqrt` sin decir de quién: ¿es math.sqrt?"),
    ("Atencion", "bias=forma.bias", "bias=bias", "usa `bias` sin decir de quién: ¿es forma.bias?"),
    (
        "Atencion, con girar",
        'position == "rope"',
        "position == rope",
        "`rope` es un texto: va entre comillas",
    ),
    ("igualar", "x.square()", "self.square()", "usa `self`, que solo hay en los métodos"),
    ("girar", "seno = angulos.cos()", "sena = angulos.cos()", "¿es `"),
    (
        "LayerNorm",
        "        self.epsilon = epsilon\n",
        "",
        "pide self.epsilon, que no se ha guardado: en __init__",
    ),
    ("Atencion", "= mirar_atras(q", "= self.mirar_atras(q", "mirar_atras no es de self"),
    ("LayerNorm", "self.weight = ", "self.weigth = ", "¿self.weigth es self.weight?"),
    ("girar", "angulos.sin()", "angulos.sen()", "Tensor no tiene `sen`: en inglés, sin"),
    (
        "Tokenizador",
        "self.caracteres = caracteres",
        "caracteres = self.caracteres",
        "guarda del revés: lo recibido va a self, self.caracteres = caracteres",
    ),
    ("Bloque", "= hacer_norma(forma)", "= self.hacer_norma(forma)", "hacer_norma no es de self"),
    ("Gpt", "super().forward(ids)", "super().forward(self, ids)", "super().forward ya lleva self"),
    ("mirar_atras", "k.mT", "k.mT()", "mT no se llama: va sin paréntesis"),
    ("mirar_atras", "math.inf", "math.infinity", "math no tiene `infinity`: ¿es `inf`?"),
    ("mirar_atras", "@ v, pesos", "@ v, [pesos]", "los corchetes de [pesos] hacen de lo que"),
    ("mirar_atras", "q.shape[-2:]", "q.shape", ".shape[-2:] da los dos últimos"),
    ("Gpt", "in self.blocks", "in range(self.blocks)", "¿falta len(…), o sobra range?"),
    ("abrir_gpt2", "if es_matriz else", "if es_matriz = True else", "o lleva = donde va =="),
    ("LayerNorm", "torch.ones(C)", "torch.ones(C).long()", "y se le dan enteros: .float()"),
    (
        "abrir_gpt2",
        "NOMBRES_EN_GPT2.items()",
        "NOMBRES_EN_GPT2",
        "NOMBRES_EN_GPT2 da una sola cosa en cada vuelta",
    ),
    (
        "entrenar",
        "optimizador.tasa = tasa * min",
        "tasa = tasa * min",
        "`tasa = …` no cambia optimizador.tasa",
    ),
    # Los bucles.
    (
        "entrenar",
        "    perdidas = []\n    for t in range(1, pasos + 1):\n",
        "    for t in range(1, pasos + 1):\n        perdidas = []\n",
        "`perdidas = []` está dentro del bucle",
    ),
    (
        "entrenar",
        "        optimizador.tasa = tasa * min(t / 50, 1)",
        "        tasa = tasa * min(t / 50, 1)\n        optimizador.tasa = tasa",
        "`tasa` es otra en cada vuelta",
    ),
    (
        "entrenar",
        "        comienzos =",
        "        torch.manual_seed(1)\n        comienzos =",
        "pone la misma semilla en cada vuelta",
    ),
    (
        "Atencion, con girar",
        "q, k = girar(q), girar(k)",
        "for vector in (q, k):\n                vector = girar(vector)",
        "solo cambia ese nombre, y no lo que recorre el for",
    ),
    (
        "abrir_caja",
        "p.copy_(archivo",
        "p = (archivo",
        "`p = …` no cambia el parámetro, solo el nombre",
    ),
    # Los tensores.
    ("mirar_atras", "dtype=torch.bool, ", "", "es de verdadero y falso: dtype=torch.bool"),
    ("mirar_atras", "T, D = q.shape[-2:]", "B, T, D = q.shape", "reparte 2 cosas en 3 nombres"),
    ("mirar_atras", "q @ k.mT", "q @ k.T", ".mT, a los dos últimos"),
    (
        "mirar_atras",
        "    puntuaciones = q",
        "    q *= 2\n    puntuaciones = q",
        "ahí se cambia en su sitio: haz otro",
    ),
    ("mirar_atras", "def mirar_atras", "@torch.no_grad()\ndef mirar_atras", "no_grad corta el"),
    ("LayerNorm", "self.weight * des", "self.weight.data * des", "data corta el gradiente"),
    (
        "LayerNorm",
        "(varianza + self.epsilon).sqrt()",
        "math.sqrt(varianza)",
        "torch.sqrt, de tensores",
    ),
    ("Entrada", ".weight[: ids.shape[1]]", "(range(4))", "embedding quiere un tensor"),
    ("igualar", "return x /", "return nn.RMSNorm(x) /", "nn.RMSNorm(…) hace la capa"),
    ("generar", "torch.cat((ids, nueva))", "torch.cat(ids, nueva)", "reciben una lista"),
    ("Gpt", "            x = bloque(x)", "            bloque(x)", "lo que da bloque(…) se pierde"),
    (
        "abrir_gpt2",
        "nombre = nombre.replace",
        "nombre.replace",
        "replace no cambia nombre: da otro",
    ),
    # Lo que se aprende.
    (
        "Bloque",
        "self.feed_forward = ",
        "self.feedforward = ",
        "¿self.feedforward es self.feed_forward?",
    ),
    ("LayerNorm", "nn.Parameter(torch.ones(C))", "torch.ones(C)", "self.weight = nn.Parameter(…)"),
    (
        "Gpt",
        "nn.ModuleList(Bloque(forma) for _ in range(forma.n_layer))",
        "[Bloque(forma) for _ in range(forma.n_layer)]",
        "en una lista de Python, self.blocks, no se ven",
    ),
    (
        "Entrada",
        "nn.init.normal_(self.token_embedding.weight",
        "nn.init.normal_(self.token_embedding",
        "sus números son .weight",
    ),
    (
        "Bloque",
        "x + self.attention(self.norm1(x))",
        "x + self.attention",
        "una cuenta con una capa",
    ),
    ("guardar", "json.dumps(", "json.dump(", "el texto lo da json.dumps"),
    (
        "FeedForward",
        "ACTIVACIONES[forma.activation]",
        "ACTIVACIONES(forma.activation)",
        "se busca con corchetes",
    ),
    (
        "FeedForward",
        "self.activacion(self.expand(x))",
        "nn.ReLU(self.expand(x))",
        "nn.ReLU(…) hace la capa",
    ),
    ("Atencion", "3 * forma", "3forma", "un número y una letra van juntos"),
)


@pytest.mark.parametrize(("titulo", "bien", "mal", "frase"), MECANICA)
def test_un_tropiezo_con_python_se_nombra_con_su_linea(titulo, bien, mal, frase):
    nombre = POR_TITULO[titulo].nombre
    escrita = hoja.leer(SOLUCION, nombre)
    assert bien in escrita
    nueva = hoja.poner(SOLUCION, nombre, escrita.replace(bien, mal, 1))
    fallo = motivo(titulo, nueva, buscar=False)
    assert frase in fallo, fallo
    assert "\n" not in fallo
    assert ", en la línea " in fallo or "ha de llamarse igualar" in fallo, fallo


DE_LETRA_A_NUMERO = hoja.leer(SOLUCION, "Tokenizador")
EN_OTRO_ORDEN = "{i: letra for i, letra in enumerate(caracteres)}"
DE_LA_CLASE = (
    ("self.numero = {", "self.numero.update({"),
    ("in enumerate(caracteres)}", "in enumerate(caracteres)})"),
    ("    def __init__", "    numero = {}\n\n    def __init__"),
)
CALLADO = (
    (SIN_LETRA, "pass"),
    ("[self.numero[letra] for letra in texto]", "self.numeros(texto)"),
    (
        "    def descodificar",
        "    def numeros(self, texto):\n        dados = []\n        for letra in texto:\n            try:\n"
        "                dados.append(self.numero[letra])\n            except KeyError:\n                pass\n"
        "        return dados\n\n    def descodificar",
    ),
)


@pytest.mark.parametrize(
    ("cambios", "frase"),
    [
        (DE_LA_CLASE, "`numero` es de la clase, y la comparten todos"),
        (CALLADO, "ese except calla el error"),
        (
            [("{letra: i for i, letra in enumerate(caracteres)}", EN_OTRO_ORDEN)],
            "si las busca en un diccionario, va de letra a número",
        ),
    ],
)
def test_lo_que_guarda_mal_un_tokenizador_se_nombra(cambios, frase):
    assert frase in fallo_de("Tokenizador", cambios)


def test_las_letras_se_pueden_guardar_en_una_lista():
    en_lista = DE_LETRA_A_NUMERO.replace("= caracteres\n", "= list(caracteres)\n")
    assert en_lista != DE_LETRA_A_NUMERO
    texto = hoja.poner(SOLUCION, "Tokenizador", en_lista)
    assert [motivo(titulo, texto) for titulo in TITULOS] == [""] * len(TITULOS)


def test_la_tabla_de_posiciones_puede_ser_none():
    escrita = hoja.leer(SOLUCION, "Entrada")
    con_none = escrita.replace(
        "        if forma.position",
        "        self.position_embedding = None\n        if forma.position",
        1,
    )
    texto = hoja.poner(SOLUCION, "Entrada", con_none)
    assert con_none != escrita and motivo("Entrada", texto) == motivo("Gpt", texto) == ""


def test_lo_que_rompe_el_gradiente_se_dice_en_su_pieza():
    pesos = [("    return pesos", "    pesos[..., futuro] = 0\n    return pesos")]
    assert "cambia en su sitio" in fallo_de("mirar_atras", pesos)


def test_lo_que_no_acaba_se_detiene_y_dice_donde(monkeypatch):
    monkeypatch.setattr(comprobaciones, "LIMITE", 0.5)
    sin_fin = "def igualar(x):\n    while True:\n        x = x + 1\n"
    fallo = motivo("igualar", hoja.poner(SOLUCION, "igualar", sin_fin))
    assert fallo.startswith("no ha acabado en un minuto") and "en la línea" in fallo


@pytest.mark.parametrize("nombre", hoja.trozos(SOLUCION))
def test_una_respuesta_buena_no_tiene_tropiezos(nombre):
    debida = hoja.leer(SOLUCION, nombre)
    buenas = [debida, *(hoja.leer(otra.read_text(encoding="utf-8"), nombre) for otra in OTRAS)]
    for buena in buenas:
        assert mecanica.tropiezo(buena, debida) is None
        assert detalles.detalle(buena, debida, "no da lo que") is None


def test_lo_que_parece_un_tropiezo_y_no_lo_es():
    """Añadir a un conjunto, y una tupla de uno que va entre paréntesis en otra función."""
    escrito = """\
def mi_f(x):
    vistos = set()
    vistos.add(x)

    def cambiar(y):
        return (y,)

    todo = np.append(vistos, cambiar(x))
    return todo
"""
    assert mecanica.tropiezo(escrito, escrito) is None
    assert detalles.detalle(escrito, escrito, "no da lo que") is None


def test_python_no_avisa_en_ingles(recwarn):
    con_is = [("temperatura == 0", "temperatura is 0")]
    assert "con temperatura 0.0 divide entre 0" in fallo_de("generar", con_is)
    assert not [aviso for aviso in recwarn if aviso.category is SyntaxWarning]


def test_el_adam_de_la_comprobacion_es_el_de_pytorch():
    mio = hoja.cargar(SOLUCION)
    parametro = torch.nn.Parameter(torch.tensor([[1.0, -3.0], [0.5, 2.0]]))
    oficial = torch.optim.AdamW([parametro], lr=0.2, betas=(0.8, 0.9), weight_decay=0.3)
    w, (m, v) = parametro.detach().clone(), torch.zeros(2, 2, 2)
    for t in range(1, 6):
        w, m, v = mio.paso_de_adam(w, w**2 - 1, m, v, t, 0.2, 0.8, 0.9, 0.3)
        parametro.grad = parametro.detach() ** 2 - 1
        oficial.step()
        torch.testing.assert_close(w, parametro.detach())


def test_lo_que_no_esta_en_su_sitio_no_pasa():
    escrita = hoja.leer(SOLUCION, "igualar")
    texto = hoja.poner(SOLUCION, "igualar", f"# --- dado: lo mío ---\n{escrita}")
    assert "no está debajo de su línea" in motivo("igualar", texto)


def test_una_pieza_que_llama_a_exit_no_acaba_con_todo():
    texto = hoja.poner(SOLUCION, "igualar", "def igualar(x):\n    exit()\n")
    assert "exit()" in motivo("igualar", texto)


def test_lo_que_una_pieza_cambia_en_pytorch_no_alcanza_a_las_demas():
    escrita = hoja.leer(SOLUCION, "entrenar").replace(
        "    perdidas", "    torch.set_grad_enabled(False)\n    perdidas", 1
    )
    assert "el gradiente no llega" in motivo("entrenar", hoja.poner(SOLUCION, "entrenar", escrita))
    assert torch.is_grad_enabled()


def test_abre_un_gpt2_de_otros():
    transformers = pytest.importorskip("transformers", reason='here: pip install ".[convert]"')
    suya = transformers.GPT2Config(vocab_size=95, n_positions=64, n_layer=3, n_head=4, n_embd=48)
    suyo = sortear(transformers.GPT2LMHeadModel(suya).eval())
    parametros = {n: p for n, p in suyo.state_dict().items() if n != "lm_head.weight"}
    ids = torch.randint(95, (2, 64))
    mio = hoja.cargar(SOLUCION)
    with torch.inference_mode():
        logits = mio.abrir_gpt2(parametros, n_head=4)(ids)
        torch.testing.assert_close(logits, suyo(ids).logits, rtol=1e-4, atol=1e-4)


@pytest.fixture
def copia(tmp_path) -> Path:
    """Una copia del proyecto, con la biblioteca y la carpeta en que está la hoja."""
    (tmp_path / "sancho").symlink_to(ROOT / "sancho", target_is_directory=True)
    (tmp_path / "notebooks").mkdir()
    return tmp_path


def test_el_programa_escribe_las_letras_de_sample_py(copia):
    comienzo = "En un lugar"
    shutil.copy(hoja.SOLUCION, copia / "notebooks/mi_gpt.py")
    mio = [sys.executable, "notebooks/mi_gpt.py", "escribir", comienzo, "0"]
    suyo = [
        sys.executable,
        str(ROOT / "sample.py"),
        "--checkpoint",
        "pretrained",
        "--device",
        "cpu",
    ]
    suyo += ["--temperature", "0", "--start", comienzo, "--max_new_tokens", "300"]
    escritos = [
        subprocess.run(orden, cwd=copia, capture_output=True, encoding="utf-8", check=True).stdout
        for orden in (mio, suyo)
    ]
    assert escritos[0].strip() == escritos[1].strip()


@pytest.mark.parametrize("otra", OTRAS, ids=lambda ruta: ruta.stem)
def test_los_otros_programas_escriben_las_letras_de_la_solucion(otra, copia):
    escritos = []
    for texto in (SOLUCION, programa(otra)):
        hecho = ejecutar(copia, texto, "escribir", "En un lugar", "0")
        assert hecho.returncode == 0, hecho.stderr
        escritos.append(hecho.stdout)
    assert escritos[0] == escritos[1] and len(escritos[0]) > 300


@pytest.mark.parametrize("otra", OTRAS, ids=lambda ruta: ruta.stem)
def test_lo_que_guarda_un_programa_lo_abre_otro(otra, tmp_path):
    solucion, suyo = hoja.cargar(SOLUCION), hoja.cargar(programa(otra))
    ids = torch.randint(5, (1, 9))
    for uno, dos in ((suyo, suyo), (suyo, solucion), (solucion, suyo)):
        ruta = tmp_path / "un.safetensors"
        modelo = uno.Gpt(uno.Forma(5, 9, 24, n_layer=2, n_head=4, position="rope", qk_norm=True))
        uno.guardar(ruta, sortear(modelo), uno.Tokenizador("abcde"))
        abierto, letras = dos.abrir_caja(ruta)
        assert letras.caracteres == "abcde"
        torch.testing.assert_close(abierto(ids), modelo(ids), rtol=1e-4, atol=1e-4)


def test_el_programa_en_blanco_lo_dice(tmp_path):
    (tmp_path / "mi_gpt.py").write_text(BLANCA, encoding="utf-8")
    orden = [sys.executable, "mi_gpt.py", "escribir"]
    hecho = subprocess.run(orden, cwd=tmp_path, capture_output=True, encoding="utf-8")
    assert hecho.returncode == 1
    assert hecho.stderr == "Te falta una pieza: python notebooks/probar.py dice cuál.\n"


def hasta(capitulo: int) -> str:
    """La hoja de quien ha escrito las piezas hasta un capítulo."""
    texto = BLANCA
    for pieza in PIEZAS:
        if pieza.capitulo <= capitulo:
            escrito = hoja.hasta_el_12(hoja.leer(SOLUCION, pieza.nombre))
            texto = hoja.poner(texto, pieza.nombre, escrito)
    return texto


def ejecutar(copia: Path, hoja_escrita: str, *orden: str) -> subprocess.CompletedProcess:
    (copia / "notebooks/mi_gpt.py").write_text(hoja_escrita, encoding="utf-8")
    programa = [sys.executable, "notebooks/mi_gpt.py", *orden]
    return subprocess.run(programa, cwd=copia, capture_output=True, encoding="utf-8")


TEXTO = "En un lugar de la Mancha, de cuyo nombre no quiero acordarme.\n" * 40


def test_lo_que_falta_se_dice_antes_de_entrenar(copia):
    (copia / "texto.txt").write_text(TEXTO, encoding="utf-8")
    hecho = ejecutar(copia, hasta(7), "entrenar", "texto.txt")
    assert (hecho.returncode, hecho.stdout) == (1, "")
    falta = "Para entrenar te falta paso_de_adam, entrenar: python notebooks/probar.py\n"
    assert hecho.stderr == falta
    # Sin las del 9 y del 13, copiada sola a otro sitio, tampoco entrena en vano.
    hecho = ejecutar(copia, hasta(8), "entrenar", "texto.txt")
    assert (hecho.returncode, hecho.stdout) == (1, "")
    assert hecho.stderr.startswith("Te falta una pieza")


@pytest.mark.slow
def test_lo_que_se_entrena_en_el_8_se_oye_y_en_el_9_escribe(copia):
    (copia / "texto.txt").write_text(TEXTO, encoding="utf-8")
    (copia / "notebooks/taller").symlink_to(ROOT / "notebooks/taller", target_is_directory=True)
    hecho = ejecutar(copia, hasta(8), "entrenar", "texto.txt")
    assert (hecho.returncode, hecho.stderr) == (0, "")
    lineas = hecho.stdout.splitlines()
    assert lineas[:2] == [
        f"{nombre} está en blanco todavía: se usa el de la solución."
        for nombre in ("generar", "guardar")
    ]
    assert [linea.split(":")[0] for linea in lineas[2:9]] == [
        f"paso {paso} de 800" for paso in range(100, 800, 100)
    ]
    assert "En un lugar de la Mancha, de cuyo nombre no quiero acordarme." in hecho.stdout
    assert len(hecho.stdout) > 600
    hecho = ejecutar(copia, hasta(9), "escribir", "En un lugar", "0")
    assert (hecho.returncode, hecho.stderr) == (0, "")
    assert "En un lugar de la Mancha, de cuyo nombre no quiero acordarme." in hecho.stdout


def test_sin_un_modelo_se_dice_como_entrenarlo(copia):
    (copia / "mi_gpt.py").write_text(SOLUCION, encoding="utf-8")  # sola, sin la caja
    hecho = subprocess.run(
        [sys.executable, "mi_gpt.py", "escribir"], cwd=copia, capture_output=True, encoding="utf-8"
    )
    assert hecho.returncode == 1
    no_hay = "En esta carpeta no hay mi_gpt.safetensors: antes, python mi_gpt.py entrenar TEXTO\n"
    assert hecho.stderr == no_hay


@pytest.mark.parametrize("contenido", [b"", b"no es un safetensors"])
def test_un_archivo_danado_es_una_linea(contenido, copia):
    (copia / "mi_gpt.safetensors").write_bytes(contenido)
    hecho = ejecutar(copia, SOLUCION, "escribir")
    assert hecho.returncode == 1
    assert "está dañado" in hecho.stderr and hecho.stderr.count("\n") == 1


def test_un_safetensors_de_otros_es_una_linea(copia):
    save_file({"w": torch.zeros(2)}, copia / "mi_gpt.safetensors")
    hecho = ejecutar(copia, SOLUCION, "escribir")
    assert hecho.returncode == 1
    assert "no es de este programa" in hecho.stderr and hecho.stderr.count("\n") == 1


def test_lo_que_se_pide_mal_es_una_linea(copia):
    (copia / "otro.txt").write_bytes("año ".encode("cp1252") * 500)
    for argumentos, frase in (
        (("entrenar", "otro.txt"), "otro.txt no está en UTF-8"),
        (("entrenar", "no_esta.txt"), "no hay ningún archivo no_esta.txt"),
        (("escribir", "En", "caliente"), "la temperatura es un número, y 'caliente' no lo es"),
    ):
        hecho = ejecutar(copia, SOLUCION, *argumentos)
        assert hecho.returncode == 1 and frase in hecho.stderr and hecho.stderr.count("\n") == 1


def test_un_guardar_que_falla_se_sabe_antes_de_entrenar(copia):
    mal = hoja.leer(SOLUCION, "guardar").replace("save_file(", "no_guarda(")
    hecho = ejecutar(
        copia, hoja.poner(SOLUCION, "guardar", mal), "entrenar", str(ROOT / "data/apocrifo.txt")
    )
    assert hecho.returncode == 1
    assert "paso" not in hecho.stdout and "no_guarda" in hecho.stderr
    assert not (copia / "mi_gpt.safetensors").exists()


def test_un_comentario_no_deja_una_pieza_en_blanco(copia):
    escrita = hoja.leer(SOLUCION, "generar")
    con_comentario = escrita.replace("    azar =", "    # raise NotImplementedError\n    azar =", 1)
    assert con_comentario != escrita
    texto = hoja.poner(SOLUCION, "generar", con_comentario)
    hecho = ejecutar(copia, texto, "escribir", "En un lugar", "0")
    assert (hecho.returncode, hecho.stderr) == (0, "") and "en blanco" not in hecho.stdout
