"""Lo que la rama «Codificador y descodificador» afirma de sus valores."""

# --- citas ----------------------------------------------------------------------------------------
if corpus.name == "quijote":
    libro = " ".join(corpus.text.split())
    for cita in (
        "dos arrobas de pasas y dos fanegas de trigo",
        "en poco más de mes y medio la tradujo",
    ):
        assert cita in libro

# --- abreviar -------------------------------------------------------------------------------------
assert abreviar("don campo mano tan también") == "dõ cãpo mano tã tãbién"
assert ficha("don Quijote de la Mancha".split(), 4) == "Mãcha, dõ Quijote de la"

# --- en_su_sitio ----------------------------------------------------------------------------------
assert en_su_sitio < 0.15

# --- alineamiento ---------------------------------------------------------------------------------
assert alineamiento("Mãcha, la", "la Mancha") == [7, 8, 6, 0, 1, 1, 2, 3, 4, 9]

# --- tokens_de_frases -----------------------------------------------------------------------------
assert [texto(fila) for fila in ejemplo] == ["la Mancha", "sí"]

# --- atencion_como_la_de_torch --------------------------------------------------------------------
assert lejos < 1e-5
torch.testing.assert_close(nuestra.pesos, pesos)

# --- codificador_como_el_de_torch -----------------------------------------------------------------
assert lejos < 1e-4

# --- descodificador_como_el_de_torch --------------------------------------------------------------
assert lejos < 1e-4

# --- tres_pruebas ---------------------------------------------------------------------------------
for m in (modelo, Transformer(bloques=2)):
    with torch.no_grad():
        logits = m(original, copia)  # (2, 10, V)
        cambio = (m(original, otra) - logits).abs().amax(-1)[0]  # (T,)
        assert (cambio[:6] == 0).all() and (cambio[6:] > 0).all()  # no altera lo anterior
        cambio = (m(otro, copia) - logits).abs().amax(-1)[0]
        assert (cambio > 0).all()  # lo altera todo, desde la primera letra
        sola = m(original[1:, :3], copia[1:])  # la frase corta, sin su relleno, da lo mismo
        torch.testing.assert_close(sola[0], logits[1], atol=1e-5, rtol=1e-4)

# --- aprende --------------------------------------------------------------------------------------
assert notas[-1][0] < 0.3 and notas[-1][1] > 0.92 and notas[-1][2] > 2 * notas[0][2]
if corpus.name == "quijote":
    assert notas[-1][0] < 0.06 and notas[-1][1] > 0.98
    ya_escribe = next(nota for nota in notas if nota[1] > 0.9)
    assert ya_escribe[2] < 0.8 * notas[-1][2]  # las letras llegan antes que la mirada

# --- descifrar_una --------------------------------------------------------------------------------
assert sum(x == y for x, y in zip(descifrar_una(muestra[0]), muestra[1])) >= 12

# --- rivales --------------------------------------------------------------------------------------
bajo, alto = wilson(50, 100)
assert con_regla("cãpo, dõ ĩmũdo tãbién") == "campo, don inmundo también"
assert abs(bajo - 0.4038) < 1e-3 and abs(alto - 0.5962) < 1e-3

# --- examen ---------------------------------------------------------------------------------------
peor_caso = notas_finales["nuestro Transformer"][0]
assert peor_caso > 0.5
if corpus.name == "quijote":
    assert notas_finales["regla y orden regalado"][0] > 0.97 and peor_caso > 0.87
assert peor_caso > notas_finales["diccionario"][1] + 0.4

# --- todas_las_fichas -----------------------------------------------------------------------------
escritas_bien = [salida == frase for salida, (_, frase) in zip(salidas, examen)]
de_la_muestra = modelo_bien[:: max(1, len(val) // CUANTAS)][:CUANTAS]
assert sum(de_la_muestra != escritas_bien) <= 2  # lo mismo que escribiendo letra a letra
if corpus.name == "quijote":
    assert abs(modelo_bien.mean() - dicc_bien.mean()) < 0.04
    assert dicc_bien[~nuevas].mean() > 0.99 and not dicc_bien[nuevas].any()
    assert 0.87 < modelo_bien[~nuevas].mean() < dicc_bien[~nuevas].mean()
    assert modelo_bien[nuevas].mean() > 0.75

# --- inventadas -----------------------------------------------------------------------------------
if corpus.name == "quijote":
    assert min(aciertos["vistas", t] for t in "nm") > 0.95
    assert min(aciertos["inventadas", t] for t in "nm") > 0.7

# --- mirada ---------------------------------------------------------------------------------------
assert por_cabeza.mean() > 3 * en_diagonal and por_cabeza.mean() > 0.25

# --- cinco_fichas ---------------------------------------------------------------------------------
if corpus.name == "quijote":
    assert casos[-1][1] != muestra[1]  # sin coma, no sale
    for una in (cinco[0], *cinco[2:4]):
        assert en_la_que_toca(mirada_cruzada(una, muestra[1]), una, muestra[1]).mean() > 0.25

# --- tapar ----------------------------------------------------------------------------------------
assert bien["la letra que toca"] < 0.5 and bien["otra letra, al azar"] > 0.9
assert bien["la letra que toca"] < bien["la otra que más mira"] - 0.2

# --- parametros -----------------------------------------------------------------------------------
assert cuantos(cruzado) - de_mas == cuantos(bloque)
assert cuantos(bloque) == cuantos(BloqueCodificador(config.n_embd, config.n_head))
