"""The store of the fitted points of a run: with input.fit_sample it is a group inside the store of the run."""

from .store import Store

FIT = "fit"
"""Group of the fit, and the attribute of a store that names it."""


def fitted_store(store: Store) -> Store:
    """The store of the fitted points of a run: the store itself, or its group `fit` with input.fit_sample."""
    return Store(f"{store.url}/{FIT}") if has_fit(store) else store


def has_fit(store: Store) -> bool:
    """Whether the store holds placed rows, and their fit in its group `fit`."""
    return store.attributes().get(FIT) is not None
