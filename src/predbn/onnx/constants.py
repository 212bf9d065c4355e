"""The constants of `auto` and of robust moments, which the nodes share with the PyTorch implementation."""

from predbn.norm import constants

DEFAULT_CHANCE = constants.DEFAULT_CHANCE
GAUSSIAN = constants.GAUSSIAN
LIMITS = constants.LIMITS
MIN_CHANCE = constants.MIN_CHANCE
NARROW = constants.NARROW
NETWORK_FACTOR = constants.NETWORK_FACTOR
QUANTILES = constants.QUANTILES
STORED_SIZE = constants.STORED_SIZE
TINY = constants.TINY
WIDER_FOR_FEW = constants.WIDER_FOR_FEW
