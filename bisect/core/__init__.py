"""Pure: revisions, search, statistics, verdicts. No I/O, no clock, no unseeded randomness."""
