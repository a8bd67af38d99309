"""The method `plot` of the estimator; matplotlib is imported when it is called."""

from typing import TYPE_CHECKING

from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class PlotMixin:
    """Draws the coordinates of a fitted estimator."""

    def plot(self, color: object = None, ax: "Axes | None" = None) -> "Axes":
        """Draw the coordinates on matplotlib axes, as `lle.plot` does.

        Parameters
        ----------
        color : array of shape (n,) or str, default None
            As for `lle.plot`; names are columns of a kept store.
        ax : matplotlib Axes, default None
            As for `lle.plot`.

        Returns
        -------
        matplotlib Axes
            The axes with the points, the legend or the colour bar.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from lle import LocallyLinearEmbedding
        >>> digits = load_digits()
        >>> LocallyLinearEmbedding(method="pca").fit(digits.data).plot(color=digits.target).get_xlabel()
        'coordinate 1'
        """
        check_is_fitted(self)
        from .plot import plot  # matplotlib

        return plot(self, color, ax)
