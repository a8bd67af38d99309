"""What cures a finding: a setting that the next run can take as it is, or no advice.

A test applies every value named here to data of several kinds (tests/jobs/test_cures.py): the measure improves, and the
findings of the second run do not change the same key again. So no value is one of several steps: the number of
coordinates is the dimension of the data, and n_neighbors is raised once, to MORE_NEIGHBORS.
"""

from collections.abc import Mapping
from typing import Any

from ..core.errors import Setting, counted
from ..core.methods import METHODS
from .bounds import (
    CROWDED,
    LEAST_KEPT,
    LOW_TRUSTWORTHINESS,
    NEARLY_ALL_KEPT,
    PCA_GAIN,
    PCA_KEPT_GAIN,
    PCA_SHARE,
    REDUNDANT,
    SMALL_REG,
    SPREAD_SHARE,
    Cure,
)
from .metrics import Metrics
from .number_format import percent

Config = Mapping[str, Any]
"""A resolved config."""

FLAT = [name for name, method in METHODS.items() if method.flat]
"""Methods for which not only the constant vector, but also the coordinates of flat data have the eigenvalue zero."""
MIN_SUGGEST = 50
"""Distinct points that `lle suggest` needs."""
DEFAULT_NEIGHBORS = 12
MORE_NEIGHBORS = 2 * DEFAULT_NEIGHBORS
"""With more, neighbourhoods reach across folds."""
MOST_COORDINATES = 3
"""On most real tables of four to six dimensions, principal components kept neighbours better than lle with as many
coordinates. With three there was little difference."""

NO_CURE = Cure()
CONNECT = Setting("graph", "components", "connect")
PRINCIPAL_COMPONENTS = Setting("", "method", "pca")
BY_COMPONENTS = Cure("{} computes principal components", (PRINCIPAL_COMPONENTS,))


def is_crowded(metrics: Metrics) -> bool:
    """Whether the picture shows many points at few places."""
    low = (metrics.correlation_sum or {}).get("low")
    return low is not None and low > CROWDED


def spread(metrics: Metrics, config: Config) -> Cure:
    """Principal components, if the picture shows many points at few places and these spread them.

    With as many coordinates as the data have dimensions, if as many as now would lose neighbours.
    """
    crowded, in_pca = metrics.number("correlation_sum"), metrics.number("pca_correlation_sum")
    if config["method"] == "pca" or not is_crowded(metrics) or crowded is None or in_pca is None:
        return NO_CURE
    if in_pca >= SPREAD_SHARE * crowded:
        return NO_CURE
    gain, high = metrics.number("pca_gain") or 0.0, (metrics.pca_gain or {}).get("high") or 0.0
    value, about = dimensions(metrics, config)
    is_possible = n_coordinates(metrics) < value < (metrics.n_features or 1 << 30)
    if is_possible and (metrics.number("trustworthiness") or 0.0) + gain < LOW_TRUSTWORTHINESS:
        text = f"{{}} spreads the points, and keeps neighbours with {{}}: the data have {about} dimensions"
        return Cure(text, (PRINCIPAL_COMPONENTS, Setting("eigensolver", "n_components", value)))
    price = f", but lowers the trustworthiness by {-gain:.2g}" if high < 0.0 else ""
    return Cure(f"{{}} spreads the points{price}", (PRINCIPAL_COMPONENTS,))


def connected(metrics: Metrics, config: Config) -> Cure:
    """Join the pieces of the graph, if there are several."""
    if config["method"] == "pca" or (metrics.n_components_weak or 1) < 2:
        return NO_CURE
    text = "{} joins the pieces by their shortest links and embeds all rows together; pieces far apart shrink to points"
    if not metrics.components_differ_in:
        return Cure(text, (CONNECT,))
    text += ". To join them by their other columns, leave these out of {}"
    return Cure(text, (CONNECT, Setting("input", "columns")))


def more_neighbors(metrics: Metrics, config: Config, text: str) -> Cure:
    """`text` with a larger n_neighbors; no cure if it is large already, larger than the data allow, or not used."""
    n_points = metrics.n_points or 0
    if config["method"] == "pca" or metrics.list_sizes:  # lists of varying length have other keys
        return NO_CURE
    if config["neighbors"]["n_neighbors"] >= MORE_NEIGHBORS or n_points <= 2 * MORE_NEIGHBORS:
        return NO_CURE
    return Cure(text, (Setting("neighbors", "n_neighbors", MORE_NEIGHBORS),))


def reg_from_data(metrics: Metrics, config: Config) -> Cure:
    """`weights.reg: auto` instead of a number; no cure if it is auto, or if the method or rule does not use it."""
    if metrics.reg is None or config["weights"]["reg"] == "auto" or config["weights"]["rule"] == "absolute":
        return NO_CURE
    text = f"{{}} is {config['weights']['reg']:g}; {{}} chooses it by the noise in the data"
    return Cure(text, (Setting("weights", "reg"), Setting("weights", "reg", "auto")))


def n_coordinates(metrics: Metrics) -> int:
    """The number of coordinates; 0 without an embedding."""
    return len((metrics.eigenvalues or [[]])[0])


def more_coordinates(metrics: Metrics, config: Config) -> Cure:
    """As many coordinates as the data have dimensions, but fewer than columns and points.

    As principal components if the neighbourhoods are too small for so many, if principal components are better already
    with fewer, or if there are more than ``most_coordinates``.
    """
    m, (needed, about) = n_coordinates(metrics), dimensions(metrics, config)
    value = min(needed, (metrics.n_features or 1 << 30) - 1, (metrics.n_points or 1 << 30) - 1)
    if not m or value <= m:
        return NO_CURE
    few = f"{counted(m, 'coordinate')} {'is' if m == 1 else 'are'} too few"
    about = about if value == needed else f"at least {value}"
    text = f"{few}: the data have {about} dimensions around each point"
    setting = Setting("eigensolver", "n_components", value)
    if value > most_by_neighbors(metrics, config):
        sizes = metrics.list_sizes
        shortest = f" (at least {sizes['least']:.0f})" if sizes else ""
        text += f", for which {neighbors(metrics, config)} neighbours{shortest} do not suffice"
    elif is_behind_pca(metrics, config) and not reg_from_data(metrics, config):
        text += ", and principal components keep neighbours better"
    elif value > most_coordinates(config) and not reg_from_data(metrics, config):
        text += ", for which principal components usually keep neighbours better"
    else:
        return Cure(f"{text}; set {{}}", (setting,))
    return Cure(f"{text}; set {{}} and {{}}", (PRINCIPAL_COMPONENTS, setting))


def neighbors(metrics: Metrics, config: Config) -> int:
    """The number of neighbours of most points."""
    return int(round(metrics.list_sizes["mean"]) if metrics.list_sizes else config["neighbors"]["n_neighbors"])


def dimensions(metrics: Metrics, config: Config) -> tuple[int, str]:
    """The dimension of the data around points, 0 if it is not known, and in words.

    k distances to neighbours do not show more than k dimensions, because k neighbours span no more. Nor do d columns
    have more than d; of whole numbers, which lie on a grid, the estimate is too high.
    """
    estimate, k = metrics.number("intrinsic_dimension"), neighbors(metrics, config)
    if estimate is None:
        return 0, ""
    d = metrics.n_features or k + 1
    value = min(round(estimate), k, d)
    is_least = estimate > min(6.5, k) and value < d  # such are too low (Levina & Bickel 2004, section 4)
    return value, f"{'at least' if is_least else 'about'} {value}"


def most_coordinates(config: Config) -> int:
    """The most coordinates that are advised for a method; any number for pca."""
    return 1 << 30 if config["method"] == "pca" else MOST_COORDINATES


def most_by_neighbors(metrics: Metrics, config: Config) -> int:
    """The most coordinates for which the neighbourhoods are large enough.

    Weights interpolate a point between its neighbours if these surround it, which takes more than two for each
    dimension.
    """
    if config["method"] == "pca":
        return 1 << 30
    k = neighbors(metrics, config)
    least = int(metrics.list_sizes["least"] if metrics.list_sizes else k)
    if isinstance(config["neighbors"]["k_min"], int):
        least = min(least, config["neighbors"]["k_min"])
    of_method = max(m for m in range(max(least, 1)) if METHODS[config["method"]].min_neighbors(m) <= least or not m)
    return of_method if config["method"] == "hessian" else min((k - 1) // 2, of_method)


def cure_of_lost_neighbors(metrics: Metrics, config: Config) -> Cure:
    """More coordinates if neighbours are lost or of pca, a reg from the data, other eigenvectors than redundant ones,
    better principal components, `lle suggest`."""
    are_lost = (metrics.number("trustworthiness") or 0.0) < LOW_TRUSTWORTHINESS or hardly_kept(metrics)
    are_lost |= config["method"] == "pca"  # which keeps more of all neighbours with each coordinate
    coordinates = more_coordinates(metrics, config) if are_lost else NO_CURE
    data_reg, components = reg_from_data(metrics, config), better_components(metrics, config)
    return coordinates or data_reg or _others(metrics, config) or components or suggest(metrics, config)


def suggest(metrics: Metrics, config: Config) -> Cure:
    """`lle suggest`; no cure for few points, or if it, or the user, has chosen another method than lle and pca, or
    another n_neighbors than the default and that of `more_neighbors`."""
    is_default = config["neighbors"]["n_neighbors"] in (DEFAULT_NEIGHBORS, MORE_NEIGHBORS)
    is_compared = config["method"] == "pca" or (config["method"] == "lle" and is_default)
    if not is_compared or (metrics.n_points or MIN_SUGGEST) < MIN_SUGGEST:
        return NO_CURE
    others = "coordinates" if config["method"] == "pca" else "neighbours"
    text = f"Run `lle suggest`, unless it chose these settings: it compares other numbers of {others} and methods"
    return Cure(text, is_command=True)


def hardly_kept(metrics: Metrics) -> bool:
    """Whether the share of kept neighbours is surely below LEAST_KEPT. On many points the trustworthiness can be high
    then: it only asks whether neighbours are among the nearest few per cent of all points."""
    high = (metrics.kept_neighbors or {}).get("high")
    return high is not None and high < LEAST_KEPT


def cure_of_clumps(metrics: Metrics, config: Config) -> Cure:
    """Another method than ltsa and hessian, a reg chosen from the data, independent coordinates, `cure_of_groups`."""
    if config["method"] in FLAT and is_behind_pca(metrics, config):
        return BY_COMPONENTS
    if config["method"] in FLAT:
        return Cure("{} is less sensitive to sparse regions", (Setting("", "method", "lle"),))
    return (
        reg_from_data(metrics, config)
        or _independent(config, "{} takes eigenvectors that are spread over more points")
        or cure_of_groups(metrics, config, "few points")
    )


def cure_of_groups(metrics: Metrics, config: Config, group: str = "group") -> Cure:
    """Principal components if these spread the points, else more neighbours, which link a group to the others.

    A picture of few dots has them with more neighbours too.
    """
    return spread(metrics, config) or more_neighbors(metrics, config, f"{{}} links the {group} to more of the others")


def _independent(config: Config, text: str) -> Cure:
    """Independent coordinates instead of the first; no cure if the config has them, or for pca."""
    if config["method"] == "pca" or config["embedding"]["coordinates"] == "independent":
        return NO_CURE
    return Cure(text, (Setting("embedding", "coordinates", "independent"),))


def _others(metrics: Metrics, config: Config) -> Cure:
    """Independent coordinates, if one is redundant and the data have more dimensions than those before it.

    Of a long shape with many points another eigenvector shows the width, which no trial on a sample finds: there the
    order of the eigenvectors is another one. On other data none may be better: then the next run has another cure.
    """
    # A coordinate that separates pieces can be a function of another.
    if (
        metrics.components_joined
        or not _n_new(metrics)
        or round(metrics.number("intrinsic_dimension") or 0) <= _n_new(metrics)
    ):
        return NO_CURE
    return _independent(config, "{} looks for a better one among the next eigenvectors")


def _n_new(metrics: Metrics) -> int:
    """The number of coordinates before the first one that these predict; 0 if there is none."""
    return next((j for j, value in enumerate(metrics.redundancy or []) if value > REDUNDANT), 0)


def cure_of_redundancy(metrics: Metrics, config: Config) -> Cure:
    """More coordinates if hardly any neighbours are kept, else principal components if these spread the points of few
    dots, else other eigenvectors if the data have more dimensions, else principal components if these are better, else
    the coordinates before the first redundant one, if the data do not have more dimensions and nearly all neighbours
    are kept, else `lle suggest`.
    """
    if hardly_kept(metrics):
        return more_coordinates(metrics, config)
    if cure := spread(metrics, config):
        return cure
    dimension, n_new = round(metrics.number("intrinsic_dimension") or 0), _n_new(metrics)
    trust = metrics.number("trustworthiness") or 0.0
    if trust < LOW_TRUSTWORTHINESS:  # which has a cure of its own
        return better_components(metrics, config)
    if metrics.components_joined:
        return better_components(metrics, config) or suggest(metrics, config)
    if cure := _others(metrics, config) or better_components(metrics, config):
        return cure
    if trust < NEARLY_ALL_KEPT or not 1 <= dimension <= n_new:
        return suggest(metrics, config)
    # A closed curve has one dimension around each point, but needs two coordinates.
    have = f"The data have about {counted(dimension, 'dimension')} around each point"
    text = have if n_new == dimension else f"Coordinates 1 to {n_new} are independent"
    return Cure(f"{text}; set {{}}", (Setting("eigensolver", "n_components", n_new),))


def better_components(metrics: Metrics, config: Config) -> Cure:
    """Principal components, if these are better; not if the embedding is worse because of a reg that was set."""
    if not is_behind_pca(metrics, config) or reg_from_data(metrics, config):
        return NO_CURE
    numbers = "" if is_far_behind_pca(metrics, config) else f" ({of_components(metrics)})"  # else in the warning
    return Cure(f"Principal components keep neighbours better{numbers}; set {{}}", (PRINCIPAL_COMPONENTS,))


def is_far_behind_pca(metrics: Metrics, config: Config) -> bool:
    """Whether the trustworthiness of principal components is surely higher by more than PCA_GAIN.

    Not if they lose more of the nearest neighbours than they gain: `lle suggest` gives both measures the same weight.
    """
    low, kept_gain = (metrics.pca_gain or {}).get("low"), metrics.number("pca_kept_gain") or 0.0
    is_much = low is not None and low > PCA_GAIN and (metrics.number("pca_gain") or 0.0) + kept_gain > 0.0
    return config["method"] != "pca" and is_much


def is_behind_pca(metrics: Metrics, config: Config) -> bool:
    """Whether principal components keep neighbours better than the embedding, by much or compared with what it lost."""
    low = (metrics.pca_gain or {}).get("low")
    if config["method"] == "pca" or low is None:
        return False
    lost, lost_nearest = (1 - (metrics.number(key) or 0.0) for key in ("trustworthiness", "kept_neighbors"))
    kept_gain, kept_low = metrics.number("pca_kept_gain") or 0.0, (metrics.pca_kept_gain or {}).get("low") or 0.0
    keeps_more = kept_gain > PCA_SHARE * lost_nearest and kept_low > PCA_KEPT_GAIN
    is_reduced = n_coordinates(metrics) != metrics.n_features  # else components are the data, turned
    is_half = low > PCA_SHARE * lost and keeps_more and is_reduced
    return is_far_behind_pca(metrics, config) or is_half


def of_components(metrics: Metrics) -> str:
    """How much better principal components keep neighbours."""
    gain, kept = metrics.number("pca_gain") or 0.0, metrics.number("kept_neighbors")
    text, kept_gain = f"trustworthiness {gain:.2g} higher", metrics.number("pca_kept_gain")
    if kept is None or kept_gain is None:
        return text
    of_nearest = f"{percent(min(kept + kept_gain, 1.0))} of the nearest kept instead of {percent(kept)}"
    return f"{text}, {'but ' * (kept_gain < 0)}{of_nearest}"


def cure_of_low_eigenvalues(metrics: Metrics, config: Config, is_harmless: bool) -> Cure:
    """A larger reg than a very small one, else more neighbours: both raise the lowest eigenvalues.

    More neighbours change the embedding, so they are no cure where its coordinates are right.
    """
    reg = metrics.reg["value"] if metrics.reg else None
    if reg is not None and reg < SMALL_REG:
        return reg_from_data(metrics, config)
    return NO_CURE if is_harmless else more_neighbors(metrics, config, "{} raises the eigenvalues")


def cure_of_convergence(metrics: Metrics, config: Config) -> Cure:
    """A larger reg or more steps for multigrid, else another method; no cure for pca, which has one solver."""
    if config["method"] == "pca":
        return NO_CURE
    failed = [solver["method"] for solver in metrics.solvers or [] if not solver["converged"]]
    if any(method.startswith("multigrid") for method in failed):
        reg, more = reg_from_data(metrics, config), 10 * config["eigensolver"]["max_steps"]
        text = f"{reg.text}, and multigrid then converges; with {{}} the next run continues" if reg else ""
        text = text or "With {} the next run continues"
        return Cure(text, (*reg.settings, Setting("eigensolver", "max_steps", more)))
    return Cure("With {} memory is no limit to the choice of a method", (Setting("eigensolver", "method", "auto"),))
