"""The config keys that cure what the warnings are about: the key, its value now, and a better one."""

from collections.abc import Mapping
from typing import Any

from .bounds import WITHOUT_LOCAL_FIT, value_of
from .number_format import is_known

Metrics = Mapping[str, Any]
Config = Mapping[str, Any]

WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
FLAT = ("ltsa", "hessian")
"""Methods for which not only the constant vector, but also the coordinates of flat data have the eigenvalue zero."""
MIN_SUGGEST = 50
"""Distinct points that `lle suggest` needs."""
UNDERESTIMATED_ABOVE = 6.5
"""Estimates above this are lower than the true dimension (Levina & Bickel 2004, section 4)."""


def in_words(count: int) -> str:
    """A small number as a word.

    >>> in_words(3), in_words(20)
    ('three', '20')
    """
    return WORDS[count] if 0 <= count < len(WORDS) else str(count)


def n_coordinates(metrics: Metrics) -> int:
    """Coordinates of the embedding; 0 before the eigensolve."""
    return len((metrics.get("eigenvalues") or [[]])[0])


def dimensions_needed(metrics: Metrics, config: Config) -> int | None:
    """The eigensolver.n_components of the intrinsic dimension; None if there are as many coordinates already.

    It is at most the number of features, and at most what the method allows for the config's n_neighbors.
    """
    dimension, m = value_of(metrics, "intrinsic_dimension"), n_coordinates(metrics)
    if dimension is None or not m:
        return None
    limits = [round(dimension), _most_coordinates(metrics, config)]
    if is_known(metrics.get("n_features")):
        limits.append(int(metrics["n_features"]))
    return min(limits) if min(limits) > m else None


def _most_coordinates(metrics: Metrics, config: Config) -> int:
    """The largest n_components that the method allows for the config's neighbourhoods."""
    k = int((metrics.get("list_sizes") or {}).get("least") or config["neighbors"]["n_neighbors"])
    if config["method"] == "pca":
        return round(value_of(metrics, "intrinsic_dimension") or 0)
    if config["method"] == "hessian":
        return max(m for m in range(k) if 1 + m + m * (m + 1) // 2 <= k)
    return k - 1


def too_few_coordinates(metrics: Metrics, config: Config) -> str:
    """A sentence that names more coordinates; empty if the dimension does not ask for more."""
    needed = dimensions_needed(metrics, config)
    if needed is None:
        return ""
    m, dimension = n_coordinates(metrics), value_of(metrics, "intrinsic_dimension") or 0.0
    count = "One coordinate is" if m == 1 else f"{in_words(m).capitalize()} coordinates are"
    about = "at least" if dimension > UNDERESTIMATED_ABOVE else "about"
    return (
        f"{count} too few: the data have {about} {in_words(round(dimension))} dimensions around each point; set "
        f"eigensolver.n_components: {needed}"
    )


def other_reg(metrics: Metrics, config: Config) -> str:
    """Advice about weights.reg; empty if the method does not use it, or if it is auto already."""
    used = (metrics.get("reg") or {}).get("value")
    if used is None or config["weights"]["reg"] == "auto":
        return ""
    return f"weights.reg is {used:g}; weights.reg: auto chooses it by the noise in the data"


def cure_of_lost_neighbors(metrics: Metrics, config: Config) -> str:
    """Advice for lost neighbours: more coordinates, another reg, another number of neighbours or method."""
    cures = [too_few_coordinates(metrics, config), other_reg(metrics, config)]
    if not cures[0]:
        cures.append(
            f"other values of neighbors.n_neighbors (now {config['neighbors']['n_neighbors']}) or another method can "
            f"keep more{_suggested_by(metrics, 'them')}"
        )
    return "; ".join(filter(None, cures))


def cure_of_clumps(metrics: Metrics, config: Config) -> str:
    """Advice for a coordinate concentrated on few points: a larger reg or more neighbours."""
    if config["method"] in FLAT:
        return f"method: lle with weights.reg: auto is less sensitive to sparse regions than {config['method']}"
    k = f"neighbors.n_neighbors (now {config['neighbors']['n_neighbors']})"
    used = (metrics.get("reg") or {}).get("value")
    if used is not None and used < WITHOUT_LOCAL_FIT:
        return f"A larger weights.reg (now {used:g}), such as 0.1, or a larger {k} spreads them over more points"
    return f"A larger {k} spreads them over more points"


def cure_of_redundancy(metrics: Metrics, config: Config) -> str:
    """Advice for redundant coordinates: fewer of them, a smaller reg than that of the config, or else more of them.

    If auto chose a large reg, the neighbourhoods are noisy, or a smaller one kept fewer neighbours.
    """
    used, dimension = (metrics.get("reg") or {}).get("value"), value_of(metrics, "intrinsic_dimension")
    m = n_coordinates(metrics)
    if dimension is not None and 1 <= round(dimension) < m:
        about = in_words(round(dimension))
        return (
            f"The data have about {about} dimension{'s' if round(dimension) > 1 else ''}; set "
            f"eigensolver.n_components: {round(dimension)}"
        )
    if used is not None and used >= WITHOUT_LOCAL_FIT and config["weights"]["reg"] != "auto":
        return f"A smaller weights.reg (now {used:g}), such as 1e-3, makes the coordinates less similar, but fits noise"
    return f"Set eigensolver.n_components: {m + 1} or more, and use those coordinates that are not redundant"


def cure_of_long_distances(metrics: Metrics, config: Config) -> str:
    """Advice to use a method that keeps more distances than LLE; empty if noise required a large reg."""
    used = (metrics.get("reg") or {}).get("value")
    if config["method"] != "lle" or used is None or used >= WITHOUT_LOCAL_FIT:
        return ""
    return f"method: modified can keep more of them{_suggested_by(metrics, 'the methods')}"


def _suggested_by(metrics: Metrics, values: str) -> str:
    """The remark that `lle suggest` compares values, which needs MIN_SUGGEST points."""
    return f"; `lle suggest` compares {values}" if (metrics.get("n_points") or MIN_SUGGEST) >= MIN_SUGGEST else ""


def cure_of_convergence(metrics: Metrics, config: Config) -> str:
    solvers = [solver for solver in metrics.get("solvers") or [] if not solver["converged"]]
    if any(solver["method"] == "polynomial" for solver in solvers):
        return f"Raise eigensolver.max_degrees (now {config['eigensolver']['max_degrees']}) or eigensolver.tol"
    return "Raise eigensolver.tol or max_memory, or choose another eigensolver.method"
