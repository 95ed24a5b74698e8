"""Bounds on a model's numbers: far above any model there is, far below what would overflow."""

MAX_LAYERS = 1 << 10  # a program of so many is written in half a second
MAX_WIDTH = 1 << 20  # hidden size and inner width of the feed-forward
MAX_HEADS = 1 << 14
MAX_HEAD_DIM = 1 << 12
MAX_EXPERTS = 1 << 10  # of a layer
MAX_LAYER_EXPERTS = 1 << 14  # of all layers together: each is three weights by name
MAX_VOCABULARY = 1 << 24
MAX_CONTEXT = 1 << 28
MAX_ADAPTER_RANK = 1 << 12
MIN_EPS = 1e-12
MAX_EPS = 1.0
MIN_THETA = 2.0  # YaRN divides by its logarithm
MAX_THETA = 1e18
MIN_SCALE = 1e-3  # rope scaling factors
MAX_SCALE = 1e6
