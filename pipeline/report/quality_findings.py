"""Findings about the measures of quality: neighbours that are kept, principal components, redundancy, distances."""

from collections.abc import Iterator
from dataclasses import replace

from ..core.errors import counted
from . import bounds, cures
from .bounds import Cure, Finding, Level
from .cures import NO_CURE, Config
from .metrics import Metrics
from .number_format import beside, joined, percent


def of_neighborhoods(metrics: Metrics, config: Config) -> Iterator[Finding]:
    """Neighbours of the same class, or else any neighbours, that the embedding has not kept."""
    cure, trust = cures.cure_of_lost_neighbors(metrics, config), metrics.number("trustworthiness")
    before, after = metrics.number("neighborhood_hit_input"), metrics.number("neighborhood_hit")
    if before is not None and after is not None and after < (bound := least_hit(metrics)):
        sentence = (
            f"Neighbours of the same {metrics.label or 'label'} fell from {percent(before)} in the data to "
            f"{percent(after)} in the embedding{scope(metrics)} (bound: {percent(bound)})"
        )
        yield Finding("neighborhood_hit", after, bound, sentence, _about_labels(cure, trust), "grave")
    low = bounds.LOW_TRUSTWORTHINESS
    if trust is not None and trust < low:
        sentence = (
            "Many neighbours in the embedding are not neighbours in the data (trustworthiness "
            f"{beside(trust, 3, low)}{scope(metrics, ', ')}; bound: {low:g}): do not interpret clusters in the picture"
        )
        yield Finding("trustworthiness", trust, low, sentence, cure, "grave")
    elif trust is not None and has_lost_the_nearest(metrics):
        sentence = (
            "Hardly any nearest neighbours in the embedding are nearest neighbours in the data "
            f"({kept_words(metrics)}; bound: {percent(bounds.LEAST_KEPT)}): interpret only the coarse arrangement"
        )
        yield Finding("kept_neighbors", metrics.number("kept_neighbors"), bounds.LEAST_KEPT, sentence, cure, "grave")


def least_hit(metrics: Metrics) -> float:
    """The bound of the neighbourhood hit, `bounds.min_hit`; 0 if it has none."""
    before, value = metrics.neighborhood_hit_input or {}, metrics.number("neighborhood_hit_input") or 0.0
    low, chance = before.get("low"), before.get("chance")
    return bounds.min_hit(value, value if low is None else low, chance or 0.0)


def _about_labels(cure: Cure, trust: float | None) -> Cure:
    """The same cure; it does not always show classes that the features hardly determine."""
    if trust is None or not {"n_components", "method"}.intersection(setting.key for setting in cure.settings):
        return cure
    return replace(cure, text=f"{cure.text}. This raises the trustworthiness ({trust:.3f}), but not always this share")


def has_lost_the_nearest(metrics: Metrics) -> bool:
    """Whether hardly any neighbours are kept by an embedding without a good trustworthiness. With a good one, noise in
    the distances between near points can be the reason: then it is a remark."""
    return cures.hardly_kept(metrics) and (metrics.number("trustworthiness") or 0.0) < bounds.GOOD_TRUSTWORTHINESS


def of_crowding(metrics: Metrics, config: Config) -> Iterator[Finding]:
    """Many points at few places. A remark if they are there in principal components too, or if these are the method."""
    crowded, in_pca = metrics.number("correlation_sum"), metrics.number("pca_correlation_sum")
    if crowded is None or in_pca is None or not cures.is_crowded(metrics):
        return
    sentence = (
        f"The picture{scope(metrics)} shows many points at few places: {percent(crowded)} of the pairs of "
        f"points differ by at most 1 % of the range in every coordinate (bound: {percent(bounds.CROWDED)}; principal "
        f"components: {percent(in_pca)})"
    )
    cure = cures.spread(metrics, config)
    level: Level = "grave" if cure else "note"
    yield Finding("correlation_sum", crowded, bounds.CROWDED, sentence, cure, level)


def of_pca(metrics: Metrics, config: Config) -> Iterator[Finding]:
    """Principal components that keep neighbours better than the embedding."""
    if (gain := metrics.pca_gain) is None or not cures.is_behind_pca(metrics, config):
        return
    sentence = (
        f"Principal components keep neighbours better than the embedding ({cures.of_components(metrics)}"
        f"{scope(metrics, ', ')})"
    )
    cure = cures.reg_from_data(metrics, config) or cures.BY_COMPONENTS
    level: Level = "minor" if cures.is_far_behind_pca(metrics, config) else "note"
    yield Finding("pca_gain", gain["low"], bounds.PCA_GAIN, sentence, cure, level)


def of_redundancy(metrics: Metrics, config: Config) -> Iterator[Finding]:
    """Coordinates that the earlier ones predict."""
    repeated = {j: value for j, value in enumerate(metrics.redundancy or [], start=1) if value > bounds.REDUNDANT}
    if not repeated:
        return
    subject = f"Coordinate {min(repeated)} is" if len(repeated) == 1 else f"Coordinates {joined(repeated)} are"
    shares = sorted({f"{value:.2f}" for value in (min(repeated.values()), max(repeated.values()))})
    sentence = f"{subject} predictable from the earlier ones by local linear fits (R² {' to '.join(shares)})"
    trust = metrics.number("trustworthiness")
    if trust is not None and trust >= bounds.LOW_TRUSTWORTHINESS:
        kept = metrics.number("kept_neighbors")
        words = "neighbours are kept" if kept is None or kept >= bounds.MOST_KEPT else "neighbours stay near each other"
        words = "hardly any neighbours are kept" if cures.hardly_kept(metrics) else words
        sentence += f"; {words} ({kept_words(metrics)})"
    computed = metrics.coordinates[0]["computed"] if metrics.coordinates else 0
    if computed > len(metrics.redundancy or []):  # `embedding.coordinates: independent` looked for others
        sentence += f". No other of the {computed} computed eigenvectors was clearly better"
    cure = cures.cure_of_redundancy(metrics, config)
    level: Level = "grave" if cure or min(repeated) <= 2 else "minor"  # the largest picture shows the first two
    yield Finding("redundancy", max(repeated.values()), bounds.REDUNDANT, sentence, cure, level)


def of_distances(metrics: Metrics, config: Config) -> Iterator[Finding]:
    variance = metrics.number("residual_variance")
    if variance is None or variance <= bounds.GOOD_RESIDUAL_VARIANCE:
        return
    high = bounds.HIGH_RESIDUAL_VARIANCE
    if variance <= high:
        sentence = f"Long distances differ from those along the data (residual variance {variance:.2f})"
        yield Finding("residual_variance", variance, bounds.GOOD_RESIDUAL_VARIANCE, sentence, level="note")
        return
    sentence = (
        "Distances across the embedding do not follow the paths along the data (residual variance "
        f"{beside(variance, 2, high)}; bound: {high:g}): only neighbourhoods can be interpreted"
    )
    yield Finding("residual_variance", variance, high, sentence)


def of_dimensions(metrics: Metrics, config: Config) -> Iterator[Finding]:
    """Remarks: nothing is reduced, or the coordinates leave out dimensions although neighbours are not lost, or they
    may be better."""
    m, (dimension, about) = config["eigensolver"]["n_components"], cures.dimensions(metrics, config)
    if m == metrics.n_features and config["preprocess"]["pca"] is None:
        change = "turned" if config["method"] == "pca" else "deformed"
        sentence = f"{counted(m, 'coordinate')} of {counted(m, 'feature')} reduce{'s' * (m == 1)} nothing"
        yield Finding("n_features", m, m - 1, f"{sentence}: the data are only {change}", level="note")
    trust = metrics.number("trustworthiness") or 0.0
    if trust < bounds.LOW_TRUSTWORTHINESS or has_lost_the_nearest(metrics):
        return
    # Noise counts as dimensions, so it is not certain that more coordinates show more.
    cure = cures.suggest(metrics, config) if trust < bounds.GOOD_TRUSTWORTHINESS else NO_CURE
    if min(dimension, metrics.n_features or 0) > m:
        sentence = f"The data have {about} dimensions around each point, more than {counted(m, 'coordinate')}"
        yield Finding("intrinsic_dimension", metrics.number("intrinsic_dimension"), m, sentence, cure, level="note")
    elif cure:
        sentence = "Other settings may keep more neighbours"
        yield Finding("trustworthiness", trust, bounds.GOOD_TRUSTWORTHINESS, sentence, cure, level="note")


def kept_words(metrics: Metrics, between: str = "") -> str:
    """The trustworthiness and the share of the nearest neighbours that are kept, with another measure between them."""
    kept = metrics.kept_neighbors
    of_nearest = "" if kept is None else f", {percent(kept['value'])} of the {kept['n_neighbors']} nearest kept"
    return f"trustworthiness {metrics.number('trustworthiness'):.3f}{between}{of_nearest}{scope(metrics, ', ')}"


def scope(metrics: Metrics, prefix: str = " ") -> str:
    """Where the quality was measured, if the embedding has several components."""
    return f"{prefix}of the largest piece" if len(metrics.component_points or []) > 1 else ""
