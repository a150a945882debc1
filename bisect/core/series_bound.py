"""The bound."""


def bound_for(false_alarms: float) -> float:
    return 2.0
