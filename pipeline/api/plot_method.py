"""The method `plot` of the estimator; matplotlib is imported when it is called."""

from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class PlotMixin:
    """Draws the coordinates of a fitted estimator."""

    def plot(self, color: Any = None, ax: "Axes | None" = None) -> "Axes":
        """Draw the coordinates on matplotlib axes, as `lle.plot` does.

        Parameters
        ----------
        color : array of shape (n,) or str, default None
            Numbers, text or categories, one for each row; or the name of a column of a kept store, such as
            "reconstruction_error".
        ax : matplotlib Axes, default None
            Axes to draw on; None: those of a new figure.

        Returns
        -------
        matplotlib Axes
            The axes with the points, the legend or the colour bar.

        Raises
        ------
        ValueError
            There is not one colour for each row, or no column of that name.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from lle import LocallyLinearEmbedding
        >>> digits = load_digits()
        >>> LocallyLinearEmbedding(method="pca").fit(digits.data).plot(color=digits.target).get_xlabel()
        'coordinate 1'
        """
        check_is_fitted(self)
        from .plot import plot  # noqa: PLC0415 (matplotlib)

        return plot(self, color, ax)
