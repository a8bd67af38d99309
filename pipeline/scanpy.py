"""Locally linear embedding of an AnnData object, after the conventions of scanpy's tools: `lle.scanpy.lle(adata)`.

The module imports neither scanpy nor anndata: it uses only the attributes of the object.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .api.embed import finished_run, sections_of_keywords, warn_of_embedding
from .api.parameters import as_keyword
from .api.python_errors import short_traceback
from .core.arrays import Float64, Int32, Int64
from .report.metrics import Metrics
from .storage import array_specs

if TYPE_CHECKING:
    from anndata import AnnData
    from scipy.sparse import csr_array

__all__ = ["lle"]

OWN_PARAMETERS = ("use_rep", "neighbors_key", "key_added", "copy")


@short_traceback
def lle(
    adata: "AnnData",
    use_rep: str = "X_pca",
    neighbors_key: str | None = None,
    key_added: str = "lle",
    copy: bool = False,
    **parameters: object,
) -> "AnnData | None":
    """Embed the cells of an AnnData object.

    Parameters
    ----------
    adata : AnnData
        Cells by genes.
    use_rep : str, default "X_pca"
        The matrix of ``adata.obsm`` to embed; "X": ``adata.X``, which must be dense.
    neighbors_key : str or None, default None
        Take the neighbours that ``scanpy.pp.neighbors`` stored under this key of ``adata.uns`` ("neighbors" is its
        default) instead of searching them.
    key_added : str, default "lle"
        Results are ``adata.obsm["X_<key_added>"]``, ``adata.obs["<key_added>_component"]`` and
        ``adata.uns["<key_added>"]``; a leading ``X_`` is not repeated.
    copy : bool, default False
        Return a copy with the results instead of writing them to `adata`.
    **parameters : object
        Parameters of `LocallyLinearEmbedding`, such as ``n_components=3``, and sections of a config.

    Returns
    -------
    AnnData or None
        The copy, or None.

    Raises
    ------
    ValueError
        There is no such matrix or graph, or a parameter has an error.

    Examples
    --------
    >>> import anndata, numpy
    >>> import lle.scanpy
    >>> angle = numpy.linspace(0, 6, 400)
    >>> adata = anndata.AnnData(obsm={"X_pca": numpy.column_stack([numpy.cos(angle), numpy.sin(angle), angle])})
    >>> lle.scanpy.lle(adata, n_components=1)
    >>> adata.obsm["X_lle"].shape
    (400, 1)
    """
    if not hasattr(adata, "obsm"):
        raise ValueError(f"adata: expected an AnnData object, found {type(adata).__name__}; pass arrays to lle.embed")
    adata, key = adata.copy() if copy else adata, key_added.removeprefix("X_")
    if not key:
        raise ValueError(f"key_added: expected a name, such as 'lle'; found {key_added!r}")
    points = _representation(adata, use_rep)
    with tempfile.TemporaryDirectory(prefix="lle-") as folder:
        given = {name: value for name, value in parameters.items() if name != "verbose"}
        sections = sections_of_keywords(given, points, "lle.scanpy.lle", OWN_PARAMETERS)
        if neighbors_key is not None:
            path = Path(folder) / "neighbors.npy"
            lists = _padded(_graph(adata, neighbors_key))
            np.save(path, lists)
            graph = {"precomputed": {"kind": "npy", "path": str(path)}}
            sections["neighbors"] = {"k_max": max(2, lists.shape[1]), **graph, **sections.get("neighbors", {})}
        verbose, names = bool(parameters.get("verbose")), adata.obs.index
        with finished_run(points, sections, verbose, ids=names, spelled=as_keyword) as (store, result):
            embedding = store.read_all(array_specs.EMBEDDING.name)
            component, config = store.read_all(array_specs.COMPONENT.name), store.attributes()["config"]
    warn_of_embedding(result, config, as_keyword)
    _write(adata, key, embedding, component, Metrics.read(result.metrics))
    adata.uns[key]["params"] = {"use_rep": use_rep, **_plain(parameters)}
    if neighbors_key is not None:
        adata.uns[key]["params"]["neighbors_key"] = neighbors_key
    return adata if copy else None


def _write(adata: "AnnData", key: str, embedding: Float64, component: Int32, metrics: Metrics) -> None:
    adata.obsm[f"X_{key}"] = embedding
    import pandas as pd  # anndata has imported it

    numbers, codes = np.unique(component, return_inverse=True)
    adata.obs[f"{key}_component"] = pd.Categorical.from_codes(codes, [str(number) for number in numbers])
    adata.uns[key] = {
        "eigenvalues": np.array(metrics.eigenvalues, np.float64),
        "trustworthiness": metrics.number("trustworthiness"),
        "verdict": metrics.verdict or "",
    }


def _representation(adata: "AnnData", use_rep: str) -> object:
    """The matrix to embed. Raises ValueError that lists the matrices of the object."""
    if use_rep == "X":
        if adata.X is None:
            raise ValueError("use_rep: 'X' is empty; choose a matrix of adata.obsm")
        return adata.X
    if use_rep not in adata.obsm:
        keys = ", ".join(adata.obsm) or "none"
        cure = "; run scanpy.pp.pca(adata) first" if use_rep == "X_pca" else ""
        raise ValueError(f"use_rep: adata.obsm has no {use_rep!r} (there are: {keys}){cure}")
    matrix: object = adata.obsm[use_rep]
    return matrix


def _graph(adata: "AnnData", neighbors_key: str) -> "csr_array":
    """The distances of the stored neighbours. Raises ValueError that lists the graphs of the object."""
    if not isinstance(adata.uns.get(neighbors_key), Mapping):
        raise ValueError(
            f"neighbors_key: adata.uns has no graph {neighbors_key!r}; run scanpy.pp.neighbors(adata) first"
        )
    name = adata.uns[neighbors_key].get("distances_key", "distances")
    if name not in adata.obsp:
        raise ValueError(f"neighbors_key: adata.obsp has no {name!r} (there are: {', '.join(adata.obsp) or 'none'})")
    graph: csr_array = adata.obsp[name].tocsr()
    return graph


def _padded(graph: "csr_array") -> Int64:
    """The columns of each row of a CSR matrix; -1 pads."""
    counts = np.diff(graph.indptr)
    ids = np.full((graph.shape[0], max(1, int(counts.max(initial=1)))), -1, np.int64)
    ids[np.arange(ids.shape[1]) < counts[:, None]] = graph.indices
    return ids


def _plain(parameters: dict[str, object]) -> dict[str, object]:
    """Parameters of types that .h5ad files can store; others as text."""
    return {
        name: value if isinstance(value, int | float | str | bool) else str(value) for name, value in parameters.items()
    }
