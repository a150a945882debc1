"""Changes in a nightly series, by the search's own posterior.

A series is an axis on which every night is already measured. Its level is piecewise constant but
for a slow drift; noise scale, share of outliers and speed of the drift are learnt from the series
itself (marginalised on grids), so that a series with many outliers asks for a second night where a
clean one does not. Pure: values in, values out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np

from perfbisect.core.axis import IntArray
from perfbisect.core.facts import FloatArray
from perfbisect.core.likelihood import MAX_LEVELS, Grid, grid_for, noise_prior
from perfbisect.core.posterior import kernel_of
from perfbisect.core.series_bound import bound_for
from perfbisect.core.series_chain import (
    BoolArray,
    NightChain,
    Solved,
    chain_of_nights,
    log_odds_of,
    solve_nights,
)
from perfbisect.core.states import Better, ChangeKind
from perfbisect.core.threshold import to_goodness, to_unit

#: Steps expected in a year of a series, before anything is seen. The bound makes up for it.
STEPS_PER_YEAR = 12.0
#: Nights looked at: older ones say little about today's level.
WINDOW = 60
#: Nights that tell how common outliers are.
HISTORY = 400
#: A change is looked for among the last so many measured nights.
LOOKBACK = 14
#: Measured nights before anything can be called a change.
FEWEST_NIGHTS = 5
#: Nights taken together as repeats when the noise is estimated.
BLOCK = 3
#: Makes a standard deviation of a median distance, for normal noise.
MAD = 1.4826
#: What is farther from the middle than so many of these is taken to be as far.
FAR_OFF = 4.0
#: Noise scales are asked about up to so many times that of all nights together, …
ROOM = 1.6
#: … this far apart at most (logarithm).
SCALES_APART = 0.35
#: A jump in the model is at least this share of the smallest effect worth naming, as in the search.
JUMP_SHARE = 0.85
#: Probability that the change lies in the nights that are named.
CREDIBLE = 0.95
#: A gap this much less likely than the likeliest is not the place of the same change.
FAINT = 0.02
_Z = 1.96


@dataclass(frozen=True, slots=True)
class SeriesSettings:
    """What makes a change of a series."""

    better: Better = Better.HIGHER
    #: Smallest relative change worth naming.
    min_effect: float = 0.02
    #: False alarms (suspicions) accepted in a year of this series.
    false_alarms: float = 1.0
    #: Further nights that must show a change where its nights can't be measured again.
    confirm_nights: int = 2


@dataclass(frozen=True, slots=True)
class NightValue:
    """What a night gave: one value, corrected for its host."""

    night: date
    #: In the series' unit, greater than zero.
    value: float
    #: Measured on a host that links it with the night before: else a step in between is the host's.
    linked: bool = True


@dataclass(frozen=True, slots=True)
class KnownChange:
    """A change that was dealt with: it lies after ``after`` and not after ``until``."""

    after: date
    until: date
    #: False: it was refuted; the model is told that nothing happened there.
    real: bool = True
    #: Its two nights were measured again, and are what they are.
    measured: bool = False


@dataclass(frozen=True, slots=True)
class FoundChange:
    """The likeliest change in the last nights. Levels are in the series' unit."""

    #: Whether the probability passes the bound of the accepted false alarms.
    suspected: bool
    #: The change lies after the first and not after the second, with 95% probability.
    last_good: date
    first_bad: date
    #: The likeliest of these nights: the first that shows it.
    likeliest: date
    #: Probability of a step of at least the smallest effect in the last nights.
    probability: float
    #: The same as log odds, comparable with ``bound``.
    log_odds: float
    bound: float
    before: float
    before_ci95: tuple[float, float]
    after: float
    after_ci95: tuple[float, float]
    #: Relative change and its 95% interval.
    change: float
    ci95: tuple[float, float]
    kind: ChangeKind
    #: Nights from the first that shows it to the last one, both included.
    nights: int


def find_change(
    nights: Sequence[NightValue],
    settings: SeriesSettings,
    known: Sequence[KnownChange] = (),
) -> FoundChange | None:
    """Return the likeliest change in the last nights; None: too few nights, or none left to doubt.

    Args:
        nights: in the order of time, one value a night; missing nights are simply not there.
        known: changes that were confirmed or refuted: they are not found again.
    """
    laid_out = _laid_out(nights, settings, known)
    if laid_out is None:
        return None
    nights = nights[-WINDOW:]
    solved = solve_nights(laid_out.chain, laid_out.candidates)
    return _described(nights, solved, laid_out.candidates, settings)


def is_suspicious(
    nights: Sequence[NightValue], settings: SeriesSettings, known: Sequence[KnownChange] = ()
) -> bool:
    """Return whether a change in the last nights passes the bound: less work than ``find_change``.

    What passes may still be too small to be worth naming.
    """
    return log_odds_of_change(nights, settings, known) >= bound_for(settings.false_alarms)


def log_odds_of_change(
    nights: Sequence[NightValue], settings: SeriesSettings, known: Sequence[KnownChange] = ()
) -> float:
    """Return the log odds of a change in the last nights alone: less work than ``find_change``."""
    laid_out = _laid_out(nights, settings, known)
    return -math.inf if laid_out is None else log_odds_of(laid_out.chain, laid_out.candidates)


def _grid(values: FloatArray) -> Grid:
    """Lay out levels and noise scales, with room for a step in the very last nights."""
    # Neighbours in time stand in for repeats: a step or a drift touches few of them.
    blocks = np.minimum(np.arange(len(values)) // BLOCK, max(0, len(values) // BLOCK - 1))
    grid = grid_for(values, blocks)
    sigmas = _with_whole(grid.sigmas, values)
    newest = values[-BLOCK:]
    low = min(float(grid.levels[0]), float(newest.min()) - 2.0 * grid.scale)
    high = max(float(grid.levels[-1]), float(newest.max()) + 2.0 * grid.scale)
    count = min(MAX_LEVELS, 1 + math.ceil((high - low) / grid.spacing))
    levels = np.linspace(low, high, count)
    sigmas = np.maximum(sigmas, 0.7 * (levels[1] - levels[0]))
    return Grid(levels, sigmas, noise_prior(sigmas), grid.scale)


def _with_whole(sigmas: FloatArray, values: FloatArray) -> FloatArray:
    """Add noise scales up to that of all nights about their middle, steps included.

    The few blocks of a young series may agree by chance. Were the noise as little as they say,
    every night would be a step.
    """
    off = np.abs(values - np.median(values))
    whole = float(np.sqrt(np.mean(np.minimum(off, FAR_OFF * MAD * np.median(off)) ** 2)))
    top, enough = float(sigmas[-1]), ROOM * whole
    if top >= enough:
        return sigmas
    more = math.ceil(math.log(enough / top) / SCALES_APART)
    return np.append(sigmas, np.geomspace(top, enough, more + 1)[1:])


def _dealt_with(days: IntArray, known: Sequence[KnownChange]) -> tuple[BoolArray, BoolArray]:
    """Return which gaps hold no change (refuted) and which hold one that is known."""
    settled = np.zeros(len(days) - 1, dtype=bool)
    excluded = settled.copy()
    for each in known:
        first, last = each.after.toordinal(), each.until.toordinal()
        inside = (days[1:] > first) & (days[:-1] < last)
        if each.real:
            excluded |= inside
        else:
            settled |= inside
    return settled, excluded


@dataclass(frozen=True, slots=True)
class _Nights:
    """Nights laid out for the chain."""

    chain: NightChain
    candidates: BoolArray


def _laid_out(
    nights: Sequence[NightValue], settings: SeriesSettings, known: Sequence[KnownChange]
) -> _Nights | None:
    """Return the chain of the last nights; None: too few nights, or no gap is in question."""
    if len(nights) < FEWEST_NIGHTS:
        return None
    goodness = np.array([to_goodness(each.value, settings.better) for each in nights[-HISTORY:]])
    older, values = goodness[:-WINDOW], goodness[-WINDOW:]
    nights = nights[-WINDOW:]
    days = np.array([each.night.toordinal() for each in nights])
    linked = np.array([each.linked for each in nights[1:]])
    settled, excluded = _dealt_with(days, known)
    candidates = ~settled & ~excluded & linked
    candidates[: max(0, len(candidates) - LOOKBACK)] = False
    if not candidates.any():
        return None
    grid = _grid(values)
    gaps = np.diff(days)
    hazard = np.minimum(-np.expm1(np.log1p(-STEPS_PER_YEAR / 365.0) * gaps), 0.5)
    # Where hosts don't overlap the level may be anything; where a step was refuted there is none.
    hazard = np.where(settled, 0.0, np.where(linked, hazard, 0.5))
    width = round(JUMP_SHARE * math.log1p(settings.min_effect) / grid.spacing) - 1
    width = min(max(0, width), len(grid.levels) - 2)
    kernel = kernel_of(width, 0.5, len(grid.levels))
    ends = {
        day for each in known if each.real and each.measured for day in (each.after, each.until)
    }
    sure = np.array([each.night in ends for each in nights])
    chain = chain_of_nights(values, gaps, hazard, kernel, grid, sure, older)
    return _Nights(chain, candidates)


def _described(
    nights: Sequence[NightValue],
    solved: Solved,
    candidates: BoolArray,
    settings: SeriesSettings,
) -> FoundChange:
    log_odds = solved.log_odds
    jump = np.where(candidates, solved.jump, 0.0)
    likeliest = solved.likeliest
    low, high = _credible(jump, likeliest)
    before, after = solved.before, solved.after
    sign = 1.0 if settings.better is Better.HIGHER else -1.0
    moved, doubt = after[0] - before[0], math.hypot(before[1], after[1])
    bounds = sorted(math.expm1(sign * moved + k * doubt) for k in (-_Z, _Z))
    bound = bound_for(settings.false_alarms)
    large = abs(math.expm1(sign * moved)) >= JUMP_SHARE * settings.min_effect
    return FoundChange(
        suspected=log_odds >= bound and large,
        last_good=nights[low].night,
        first_bad=nights[high + 1].night,
        likeliest=nights[likeliest + 1].night,
        probability=1.0 / (1.0 + math.exp(-min(log_odds, 700.0))),
        log_odds=log_odds,
        bound=bound,
        before=to_unit(before[0], settings.better),
        before_ci95=_interval(before, settings.better),
        after=to_unit(after[0], settings.better),
        after_ci95=_interval(after, settings.better),
        change=math.expm1(sign * moved),
        ci95=(bounds[0], bounds[1]),
        kind=ChangeKind.REGRESSION if moved < 0 else ChangeKind.RECOVERY,
        nights=len(nights) - 1 - likeliest,
    )


def _credible(jump: FloatArray, likeliest: int) -> tuple[int, int]:
    """Return the first and last gap of the shortest range around the likeliest that holds 95%.

    The range stays among gaps that could well be it: others, beyond a gap that could not, are the
    places of other jumps.
    """
    likely = np.concatenate([[False], jump >= FAINT * jump[likeliest], [False]])
    first = likeliest - int(np.argmin(likely[likeliest + 1 :: -1])) + 1
    last = likeliest + int(np.argmin(likely[likeliest + 1 :])) - 1
    low = high = likeliest
    # More than one in all: there may be another jump beside it, which is no place of this one.
    total = min(float(jump[first : last + 1].sum()), 1.0)
    held = float(jump[likeliest])
    while held < CREDIBLE * total:
        left = float(jump[low - 1]) if low > first else -1.0
        right = float(jump[high + 1]) if high < last else -1.0
        if left >= right:
            low -= 1
            held += left
        else:
            high += 1
            held += right
    return low, high


def _interval(level: tuple[float, float], better: Better) -> tuple[float, float]:
    ends = sorted(to_unit(level[0] + k * level[1], better) for k in (-_Z, _Z))
    return ends[0], ends[1]
