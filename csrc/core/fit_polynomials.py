"""Prints the minimax coefficients that vector_math.h and double_math.h use, as C++ hex floats.

Each is the polynomial of least maximal weighted error on an interval (Remez' exchange in 60-digit
arithmetic). Needs mpmath; run by hand when a degree or an interval changes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import mpmath  # type: ignore[import-untyped]
from mpmath import mpf

mpmath.mp.dps = 60
Function = Callable[[mpf], mpf]


def fit(f: Function, weight: Function, low: mpf, high: mpf, degree: int) -> tuple[list[mpf], mpf]:
    """Coefficients c minimizing max |(f(x) - sum c[i] x^i) * weight(x)|, and that maximum."""
    n = degree + 2
    middle, half = (low + high) / 2, (high - low) / 2
    points = [middle - half * mpmath.cos(mpmath.pi * i / (n - 1)) for i in range(n)]
    points = [x if abs(x) > half / 100 else half / 50 for x in points]  # weights vanish at zero
    grid = [middle - half * mpmath.cos(mpmath.pi * i / 2000) for i in range(2001)]
    truth = [f(x) for x in grid]
    weights = [weight(x) for x in grid]
    for _ in range(12):
        rows = [
            [x**j for j in range(degree + 1)] + [(-1) ** i / weight(x)]
            for i, x in enumerate(points)
        ]
        solved = mpmath.lu_solve(mpmath.matrix(rows), mpmath.matrix([f(x) for x in points]))
        coefficients = [solved[j] for j in range(degree + 1)]
        errors = [
            (t - mpmath.polyval(coefficients[::-1], x)) * w
            for x, t, w in zip(grid, truth, weights, strict=True)
        ]
        extremes: list[int] = []
        for i, error in enumerate(errors):
            if extremes and (error > 0) == (errors[extremes[-1]] > 0):
                if abs(error) > abs(errors[extremes[-1]]):
                    extremes[-1] = i
            else:
                extremes.append(i)
        while len(extremes) > n:  # drop the weaker end
            extremes.pop(0 if abs(errors[extremes[0]]) < abs(errors[extremes[-1]]) else -1)
        if len(extremes) < n:
            break
        points = [grid[i] for i in extremes]
    return coefficients, max(abs(e) for e in errors)


def literal(value: mpf, single: bool) -> str:
    if single:
        rounded: float = struct.unpack("f", struct.pack("f", float(value)))[0]
        return rounded.hex() + "f"
    return float(value).hex()


def report(name: str, fitted: tuple[list[mpf], mpf], single: bool) -> None:
    coefficients, error = fitted
    print(f"{name}: error 2^{float(mpmath.log(error, 2)):.1f}, highest power first")
    print("    " + ", ".join(literal(c, single) for c in coefficients[::-1]))


def away_from_zero(f: Function, at_zero: mpf) -> Function:
    return lambda x: at_zero if abs(x) < mpf(10) ** -15 else f(x)


def constant_parts(name: str, value: mpf, single: bool, bits: int | None) -> None:
    """The value as high + low; `bits` limits the high part so that small multiples are exact."""
    if bits is None:
        high = mpf(float(value))
    else:
        shift = mpf(2) ** (bits - 1 - int(mpmath.floor(mpmath.log(value, 2))))
        high = mpmath.nint(value * shift) / shift
    print(f"{name}: {literal(high, single)} + {literal(value - high, single)}")


def main() -> None:
    ln2, one = mpmath.log(2), mpf(1)
    constant_parts("ln 2, float", ln2, True, 16)
    constant_parts("ln 2, double", ln2, False, 42)
    constant_parts("pi / 2, double", mpmath.pi / 2, False, None)
    constant_parts("log2 e, double", 1 / ln2, False, None)

    def exp_rest(x: mpf) -> mpf:  # (e^x - 1 - x) / x^2
        return mpmath.hyp1f1(1, 3, x) / 2

    r = ln2 / 2 * mpf("1.0001")
    for degree, single in ((4, True), (10, False)):
        report(
            f"(exp(r) - 1 - r) / r^2, degree {degree}",
            fit(exp_rest, lambda x: x * x / mpmath.exp(x), -r, r, degree),
            single,
        )

    def log_rest(f: mpf) -> mpf:  # (log(1 + f) - f + f^2 / 2) / f^3
        return mpmath.hyp2f1(1, 3, 4, -f) / 3

    low, high = mpmath.sqrt(mpf(1) / 2) - 1, mpmath.sqrt(2) - 1

    def log_weight(f: mpf) -> mpf:
        return f**3 / mpmath.log1p(f) if f else mpf(0)

    for degree in (8,):
        report(
            f"(log(1 + f) - f + f^2/2) / f^3, degree {degree}",
            fit(log_rest, log_weight, low, high, degree),
            True,
        )

    def atanh_rest(z: mpf) -> mpf:  # (log((1 + s) / (1 - s)) - 2 s) / s^3, z = s^2
        return 2 * mpmath.hyp2f1(1, mpf(3) / 2, mpf(5) / 2, z) / 3

    s = high / (2 + high)
    for degree in (7,):
        report(
            f"atanh rest, degree {degree}",
            fit(atanh_rest, lambda z: z / 2, mpf(0), s * s * mpf("1.0001"), degree),
            False,
        )

    def tanh_rest(z: mpf) -> mpf:  # (tanh(x) - x) / x^3, z = x^2
        x = mpmath.sqrt(z)
        return (mpmath.tanh(x) - x) / x**3

    for degree in (5,):
        report(
            f"tanh rest, degree {degree}",
            fit(
                away_from_zero(tanh_rest, -one / 3), lambda z: z, mpf(0), mpf("0.625") ** 2, degree
            ),
            True,
        )

    quarter = (mpmath.pi / 4) ** 2 * mpf("1.0001")

    def sin_rest(z: mpf) -> mpf:  # (sin(x) - x) / x^3
        return -mpmath.hyp1f2(1, 2, mpf(5) / 2, -z / 4) / 6

    def cos_rest(z: mpf) -> mpf:  # (cos(x) - 1 + x^2 / 2) / x^4
        return mpmath.hyp1f2(1, mpf(5) / 2, 3, -z / 4) / 24

    report("sin rest, degree 5", fit(sin_rest, lambda z: z, mpf(0), quarter, 5), False)
    report("cos rest, degree 5", fit(cos_rest, lambda z: z * z, mpf(0), quarter, 5), False)


if __name__ == "__main__":
    main()
