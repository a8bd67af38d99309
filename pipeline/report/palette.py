"""Class colours that are distinguishable with all common forms of colour vision."""

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#7F7F7F", "#F0E442")
"""Okabe and Ito (2008), "Color Universal Design". Grey replaces black, which is invisible on a dark page; yellow is
last, because it is the faintest on white."""

COLOR_MAP = "viridis"
