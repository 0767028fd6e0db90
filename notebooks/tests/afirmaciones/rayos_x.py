"""Lo que la rama «Rayos X» afirma de sus valores."""

# --- la_caja --------------------------------------------------------------------------------------
assert config.ngram_size == 1

# --- pagina_nueva ---------------------------------------------------------------------------------
if corpus.name == "quijote":
    assert "Capítulo LXXIV" in texto_nuevo[inicio - 100 : inicio]
    assert "Como las cosas humanas no sean eternas" not in corpus.tokenizer.decode(corpus.train)
    assert 0.9 < perdida < 1.25

# --- a_mano ---------------------------------------------------------------------------------------
torch.testing.assert_close(puntos @ u, torch.tensor([5.0, -5.0, 0.0, 0.0]))
torch.testing.assert_close(puntos @ w, torch.tensor([0.0, 0.0, 1.0, -1.0]))

# --- componentes ----------------------------------------------------------------------------------
torch.testing.assert_close(componentes(puntos)[1], cuadrados / cuadrados.sum())

# --- vocales --------------------------------------------------------------------------------------
if corpus.name == "quijote":
    for X in matrices.values():
        filas = X[[frecuentes.index(c) for c in minusculas]]
        centradas = mas_apinados(F.normalize(filas - filas.mean(0), dim=1))
        assert centradas < 0.005 and mas_apinados(F.normalize(filas, dim=1)) > 2 * centradas
assert len(grupos) == math.comb(len(minusculas), 5)
if corpus.name == "quijote":
    assert tres[0] < 0.02 < 0.05 < tres[1] and con_norma < -0.5  # al esperarlos

# --- gancho ---------------------------------------------------------------------------------------
assert x.shape == (1, 6, config.n_embd)

# --- pesos_a_mano ---------------------------------------------------------------------------------
torch.testing.assert_close(pesos[0, 0, 0, 5], pesos_a_mano, rtol=1e-4, atol=1e-6)
torch.testing.assert_close(pesos.sum(-1), torch.ones(bloques, 1, cabezas, 6))
assert puntuaciones.abs().max() <= math.sqrt(D) + 1e-3  # el tope que pone QK-norm: 6.78
torch.testing.assert_close((q**2).mean(-1), torch.ones(1, cabezas, 6), rtol=1e-3, atol=1e-3)

# --- sitios ---------------------------------------------------------------------------------------
assert [c for c, si in zip(ejemplo, pregunta[0], strict=True) if si] == ["c", "h", "a"]
assert sitio[0, 12].tolist() == [6, 5, 6, 6, 6, 4, 4, 4, 3, 3, 2, 1, 0, -1]

# --- reparto --------------------------------------------------------------------------------------
torch.testing.assert_close(medidas.sum(1), torch.ones(len(todas)), rtol=1e-3, atol=1e-3)
assert todas[z_renglon] == (su_bloque, su_cabeza)  # la misma que en el trozo
if corpus.name == "quijote":
    assert [nombres[z] for z in (z_vecina, z_palabra, z_renglon)] == ["5.1", "5.2", "3.3"]
assert medidas[z_renglon, 5] > 5 * medidas[:, 5].topk(2).values[1]
assert medidas[z_vecina, 1] > 10 * por_igual[1] and medidas[z_palabra, 4] > 2 * por_igual[4]

# --- cortes ---------------------------------------------------------------------------------------
entera = F.cross_entropy(modelo(entradas).flatten(0, 1), siguientes.flatten())
for suben in de_mas.values():
    cuesta = suben.mean((1, 2))
    assert decidida.argmax() == z_renglon and cuesta.max() > 1.5 * cuesta[z_renglon]
    assert abs(torch.corrcoef(torch.stack((decidida, cuesta)))[0, 1]) < 0.7
    assert cuesta[:cabezas].mean() > 2 * cuesta[cabezas:].mean()  # el primer bloque
assert math.isclose(entera, intacto.mean(), rel_tol=1e-4)  # el modelo ha quedado como estaba
assert distan.max() < 0.2 * cuesta.max()

# --- por_clases -----------------------------------------------------------------------------------
if corpus.name == "quijote":
    assert nombres[z_mayusculas] == "5.3"
    assert torch.equal(unas.argmax(0), por_clases("cero", PARES).argmax(0))  # con cero, las mismas
    assert unas[:, 0].argmax() == z_renglon and otras[z_renglon, 0] > 2
    assert abs(otras[z_renglon, 1:]).max() < 0.3
    assert otras[z_mayusculas, 3] > 0.5 and otras[:, 2].max() < 0.5

# --- renglon --------------------------------------------------------------------------------------
assert max(map(len, texto_nuevo.split("\n"))) <= 76
if corpus.name == "quijote":
    assert (
        con[fin].mean() > con[medio].mean() + 0.3
        and max(sin[fin].mean(), sin_a_cero[fin].mean()) < 0.5 * con[fin].mean()
    )

# --- medidas_de_renglon ---------------------------------------------------------------------------
assert costes[60][0] > costes[75][0] + 1.5
assert abs(costes[60][1] - costes[75][1]) < 0.1

# --- peores ---------------------------------------------------------------------------------------
if corpus.name == "quijote":
    assert sum(vienen.flatten()[i] == "s" for i in peores) >= 3

# --- singular_y_plural ----------------------------------------------------------------------------
assert entero_s[0] > 0.8 and entero_s[1] < 0.2
assert sin_s[:, 0].argmin() == z_palabra and sin_s[z_palabra, 0] < np.sort(sin_s[:, 0])[1] - 0.15
assert sin_s[z_palabra, 2] > entero_s[2] - 0.1 and abs(a_cero[0] - sin_s[z_palabra, 0]) < 0.1

# --- injerto --------------------------------------------------------------------------------------
assert injertos[:, 0].argmax() == z_palabra and injertos[z_palabra, 0] > 0.8
assert np.sort(injertos[:, 0])[-2] < 0.1 and injertos[:, 1].max() < 0.1

# --- mapa_de_injertos -----------------------------------------------------------------------------
if corpus.name == "quijote":  # en la «s» de «las» hasta el bloque 4; después, en la última letra
    assert mapa[:-1, 2].min() > 0.6 and mapa[-1, 2] < 0.1
    assert mapa[-1, -1] > 0.9 and mapa[:-1, 3:].max() < 0.1

# --- mayusculas -----------------------------------------------------------------------------------
for z in cierran[:2]:
    assert np.abs(sin_cabeza(z, "cero", pruebas) - sin_p[z]).max() < 0.05
if corpus.name == "quijote":
    assert [nombres[z] for z in cierran[:3]] == ["5.3", "4.3", "3.2"]
assert entero_p[1] > 10 * entero_p[2]
assert sin_p[:, :2].argmin(0).tolist() == [z_mayusculas] * 2
assert (sin_p[z_mayusculas, :2] < 0.3 * entero_p[:2]).all()
assert np.sort(sin_p[:, 0])[1] > 3 * sin_p[z_mayusculas, 0]
assert sin_p[cierran[1], 1] < 0.25 * entero_p[1] and sin_p[cierran[1], 0] > 0.7 * entero_p[0]

# --- juguete --------------------------------------------------------------------------------------
assert por_caracter[repetido].mean() < 1

# --- pruebas_de_copia -----------------------------------------------------------------------------
assert mira_a_lo_que_siguio(juguete) > 0.5 and mira_a_lo_que_siguio(modelo) < 0.25
assert all((baja < -0.5) == (quien == "juguete") for (quien, _), baja in bajan.items())

# --- anotaciones ----------------------------------------------------------------------------------
assert lejos < 1e-2
for m in range(bloques):
    suma = de_sancho[m] + apuntes[2 * m] + apuntes[2 * m + 1]
    torch.testing.assert_close(de_sancho[m + 1], suma, rtol=1e-4, atol=1e-3)
torch.testing.assert_close(de_sancho[0], modelo.token_embedding(a_ids("Sancho")))

# --- tamano_de_lo_que_suman -----------------------------------------------------------------------
assert largo_suyo.argmax() == 2 * bloques - 1 and largo_suyo[-1] > 1.5 * largo_suyo[:-1].max()
assert repetido[-1] > 0.5 * largo_suyo[-1] and a_cero[0] > 1.3 * a_cero[-1]
assert con_media[0] > 1.3 * con_media[-1]
assert torch.all(norma_de_sale.diff() > 0)
if corpus.name == "quijote":
    assert min(con_media[0] / a_cero[0], con_media[1] / a_cero[1]) > 1.5
    assert max(abs(x - y) for x, y in zip(a_cero[2:], con_media[2:], strict=True)) < 0.1

# --- lente ----------------------------------------------------------------------------------------
assert math.isclose(por_etapa[-1], intacto.mean().item(), rel_tol=1e-4)
assert por_etapa[0] > solo_pares + 0.3
assert all(antes > despues for antes, despues in zip(por_etapa, por_etapa[1:], strict=False))

# --- neuronas -------------------------------------------------------------------------------------
assert neuronas.shape[-1] == bloques * ANCHO and neuronas.min() >= 0
if corpus.name == "quijote":
    seguidas, barajadas, sueltas, fin_de_renglon, _ = medianas.values()
    assert notas[qu, -1] > 0.8 and (notas[:, -1] > 0.8).sum() >= 20
    assert seguidas[-1] > 0.7 and max(barajadas[-1], sueltas[-1]) < 0.4
    assert seguidas[0] > 1.2 * seguidas[1] > 1.2 * seguidas[2]
    antes = todas[z_renglon][0]
    assert fin_de_renglon[antes:-1].max() > 1.5 * fin_de_renglon[:antes].max()
