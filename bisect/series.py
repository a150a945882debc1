"""Nightly series: points in, changes found, changes confirmed, alerts raised.

A *series* is the nightly history of one benchmark on one pool: an axis on which every night is
already measured. This is the front; the rooms behind it are in ``perfbisect.nightly``, the
statistics in ``perfbisect.core.series``, the tables in ``perfbisect.store.series_tables``.

    POST points, CSV, own nightly
              |
        record_points ------> series_points          one row per night, version and host
              |
            search            core.series: P(step)   -> series_changes, state ``suspected``
              |
            advance           the server's minute, and after each delivery:
              |                 suspected  -> confirming   re-measure the two nights, interleaved
              |                 confirming -> confirmed | refuted | suspected
              |                 suspected  -> confirmed (by further nights) | refuted
              |                 confirmed  -> closed       a recovery was confirmed
              v
    perfbisect.alerts.raise_alert(services, AlertSignal(...))

Who calls whom: ``advance`` calls ``perfbisect.alerts.raise_alert`` once for each change (regression
or recovery) that reached ``confirmed``; ``series_changes.announced_at`` is set when that returned,
and until then the call is repeated, so ``raise_alert`` must be idempotent on
``("series", change.id)``. It may refuse with any ``PerfbisectError``: that is logged and repeated.

For the alerts' side:

- ``change_of(services, change_id) -> Change``: all that is known of a change, as plain values;
- ``changes_of(services, series, *, states=None) -> list[Change]``, newest first;
- ``policy_of(services, series) -> Mapping[str, Any]``: the table ``[series.NAME.policy]`` of
  ``perfbisect.toml`` as it stands there; empty: the defaults. Its words are the alerts' own.

States (``core.series_states.ChangeState``; drawn in docs/states.md): ``suspected``, ``confirming``,
``confirmed``, ``refuted``, ``closed``. Recoveries have the same states; a confirmed recovery whose
value came back whole sets the regression it takes back (``recovers_id``) to ``closed``; one that
came back in part leaves it ``confirmed`` and says ``remaining`` (``-0.06``: still 6% below).
"""
