"""Lo que la rama de otros tokens dice de sus valores."""

# --- contar_pares ---------------------------------------------------------------------------------
# tr: tres, tristes, tragaban, trigo, trigal; es: tres, tristes, tigres
assert pares["t", "r"] == 5 and pares["e", "s"] == 3

# --- fusiones_a_mano ------------------------------------------------------------------------------
assert fusiones_a_mano[0] == ("t", "r")
assert all("".join(palabra) == "".join(tokens) for palabra, tokens in tokens_de.items())

# --- aprender_bpe ---------------------------------------------------------------------------------
# En el trabalenguas, la versión rápida hace lo mismo que la mano.
sin_repetir = Counter("".join(palabra) for palabra in trabalenguas)
assert [par for par, _ in aprender_bpe(sin_repetir, 4)] == fusiones_a_mano
assert "".join(cortar(leido)) == leido

# --- lo_que_nace ----------------------------------------------------------------------------------
if corpus.name == "quijote":
    assert nacidos[" que"] < nacidos[" Sancho"] < nacidos[" respondió"]
    assert longitud[400] < longitud[0] / 2

# --- trocear --------------------------------------------------------------------------------------
assert all("".join(trocear(p)) == p for p in (" caballerosidad", " semáforo"))

# --- tokens_por_palabra ---------------------------------------------------------------------------
assert tokens_por_palabra > 1.5
if corpus.name == "quijote":
    assert round(tokens_por_palabra, 1) == 1.9

# --- el_mediano -----------------------------------------------------------------------------------
assert veces_token.total() == longitud[-1]
if corpus.name == "quijote":
    assert medidas["palabras"][2] == 1 and medidas["caracteres"][2] > 1000

# --- pares_de_tokens ------------------------------------------------------------------------------
assert por_caracter < pares_entrenados - 0.3 and por_token > pares_entrenados + 1
assert len(con_bpe.train) == longitud[400]

# --- bytes ----------------------------------------------------------------------------------------
assert [len(c.encode()) for c in ("a", "ñ", "—", "\U0001d11e")] == [1, 2, 3, 4]

# --- dos_maneras ----------------------------------------------------------------------------------
assert tokenizador.encode(de_otro_teclado).tolist() == tokenizador.encode("¿Qué razón?").tolist()
assert tokenizador.decode(tokenizador.encode(de_otro_teclado)) == "¿Qué razón?"
assert unicodedata.normalize("NFC", separada) == junta
assert unicodedata.normalize("NFD", junta) == separada
assert unicodedata.is_normalized("NFC", texto)

# --- lo_mas_parecido ------------------------------------------------------------------------------
if corpus.name == "quijote":
    assert tokenizador.nearest("…") == "..." and tokenizador.nearest("œ") == "oe"
    assert tokenizador.nearest("k") == "c" and tokenizador.nearest("w") == "v"
    assert tokenizador.nearest("ê") == "e" and tokenizador.nearest("“") == '"'
assert tokenizador.nearest("€") is None

# --- marcas ---------------------------------------------------------------------------------------
assert marcas == len(coplas) * 17
assert set("<|>") <= set(de_coplas.characters) and not set("<|>") & set(texto)
assert de_coplas.decode(de_coplas.encode(cancionero)) == cancionero

# --- de_memoria -----------------------------------------------------------------------------------
assert perdida_de_coplas < 0.6

# --- hasta_la_marca -------------------------------------------------------------------------------
assert "\n<|fin|>\n<|inicio|>\n" in suelto  # cierra y abre
assert una_copla == suelto[: suelto.index("<|fin|>")]
assert sum(verso in cancionero for verso in una_copla.strip().splitlines()) >= 3  # recita
