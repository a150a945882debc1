"""What happens to alerts: rooms behind ``perfbisect.alerts`` and ``perfbisect.notify``."""
