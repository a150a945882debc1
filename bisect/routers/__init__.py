"""REST under ``/api/v1``: one router per kind of thing. Pages are in ``perfbisect.web``."""
