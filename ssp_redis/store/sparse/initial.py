"""First values of rows: a function of (seed, row) and nothing else, so that it is no matter who touches a row first.

Element j of row r takes number r · width + j of the random sequence SplitMix64 (Steele, Lea, Flood: "Fast Splittable
Pseudorandom Number Generators", OOPSLA 2014) that starts from the seed; any number of it can be had by itself. A
normal is made from one uniform by the inverse distribution function (Wichura: "Algorithm AS 241", Applied Statistics
37, 1988, PPND7: to six digits or more). Only + − × ÷ √ of float64 are used, which IEEE 754 rounds the same everywhere,
so the values are the same to the bit on every machine; that is why the logarithm is written out here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
#: What a row may begin as. ``uniform``: in [−scale, scale). ``normal``: mean 0, standard deviation scale.
INITIALIZERS = ("zeros", "uniform", "normal")

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LN2 = 0.6931471805599453
_CENTRE_A = (59.109374720, 159.29113202, 50.434271938, 3.3871327179)
_CENTRE_B = (67.187563600, 78.757757664, 17.895169469, 1.0)
_MIDDLE_C = (0.17023821103, 1.3067284816, 2.7568153900, 1.4234372777)
_MIDDLE_D = (0.12021132975, 0.73700164250, 1.0)
_TAIL_E = (0.017337203997, 0.42868294337, 3.0812263860, 6.6579051150)
_TAIL_F = (0.012258202635, 0.24197894225, 1.0)


def rows(initializer: str, seed: int, scale: float, numbers: Array, width: int, dtype: str) -> Array:
    """First values of the rows of those numbers: (len(numbers), width)."""
    if initializer == "zeros":
        return np.broadcast_to(np.zeros(width, dtype), (len(numbers), width))
    counters = numbers.astype(np.uint64)[:, None] * np.uint64(width) + np.arange(width, dtype=np.uint64)
    bits = _mix(_mix(np.array([seed], np.uint64) + _GOLDEN) + (counters + np.uint64(1)) * _GOLDEN)
    # 53 bits, in the middle of their interval: never 0 or 1
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    values = 2.0 * uniform - 1.0 if initializer == "uniform" else quantile(uniform)
    scaled: Array = (values * scale).astype(dtype)
    return scaled


def _mix(z: Array) -> Array:
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = z ^ (z >> np.uint64(31))
    return mixed


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def quantile(p: Array) -> Array:
    """The standard normal's inverse distribution function."""
    q = p - 0.5
    r = 0.180625 - q * q
    value = q * _polynomial(_CENTRE_A, r) / _polynomial(_CENTRE_B, r)
    outside = np.abs(q) > 0.425
    side = q[outside]
    r = np.sqrt(-_log(np.where(side < 0, p[outside], 1.0 - p[outside])))
    tail = np.where(
        r <= 5.0,
        _polynomial(_MIDDLE_C, r - 1.6) / _polynomial(_MIDDLE_D, r - 1.6),
        _polynomial(_TAIL_E, r - 5.0) / _polynomial(_TAIL_F, r - 5.0),
    )
    value[outside] = np.where(side < 0, -tail, tail)
    return value


def _log(x: Array) -> Array:
    """Natural logarithm, by ln m = 2 artanh((m − 1) / (m + 1)) for a mantissa m in [1/√2, √2)."""
    mantissa, exponent = np.frexp(x)
    low = mantissa < 0.7071067811865476
    mantissa = np.where(low, mantissa * 2.0, mantissa)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    series = _polynomial(tuple(1.0 / n for n in range(19, 0, -2)), s * s)
    return 2.0 * s * series + (exponent - low).astype(np.float64) * _LN2
