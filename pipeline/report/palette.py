"""Colours of classes that people with any common colour vision tell apart."""

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#7F7F7F", "#F0E442")
"""Okabe and Ito (2008), "Color Universal Design". Grey replaces black, which a dark page would hide; yellow, the
faintest on white, is last."""

COLOR_MAP = "viridis"
