"""What ``perfbisect.toml`` says of alerts and of who is told: ``[alerts]``, ``[notify.NAME]``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from perfbisect.alerting.mapping import Rule
from perfbisect.alerting.policy import Policy, parse_pause
from perfbisect.config import PROJECT_FILE
from perfbisect.core.alert_states import MessageEvent
from perfbisect.errors import BadInputError
from perfbisect.toml_files import read_toml

#: Apprise's own generic posts: they would go around the guard of ``webhook`` targets.
_AROUND_THE_GUARD = frozenset({"form", "forms", "json", "jsons", "xml", "xmls", "syslog", "dbus"})

_Model = TypeVar("_Model", bound=BaseModel)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AlertsTable(_Table):
    """``[alerts]``."""

    #: How long alerts of the same range are gathered before the strongest is bisected.
    group_wait: str = "1m"
    #: Bisections that alerts may start within 24 hours, all series together; nothing: any number.
    budget_per_day: Annotated[int, Field(ge=0)] | None = None
    #: Whether each pool in use measures a wheel against itself once a week (A/A).
    self_checks: bool = True
    #: What holds for every series unless its own table says otherwise.
    policy: Policy = Policy()
    rule: tuple[Rule, ...] = ()

    @field_validator("group_wait")
    @classmethod
    def _is_duration(cls, value: str) -> str:
        parse_pause(value)
        return value

    @property
    def group_wait_seconds(self) -> float:
        """Seconds of ``group_wait``."""
        return parse_pause(self.group_wait)


class Target(_Table):
    """``[notify.NAME]``: somebody who is told."""

    #: ``webhook``: signed JSON to an address; ``apprise``: a message through one of its services.
    kind: Literal["webhook", "apprise"]
    #: Exactly one of the three. Addresses of messages often hold a secret: they stay out of files
    #: that are shared.
    url: str = ""
    url_env: str = ""
    url_file: str = ""
    #: Webhooks: the key of the signature (``whsec_`` and base64), in a variable or a file.
    secret_env: str = ""
    secret_file: str = ""
    #: Which events are told.
    events: tuple[MessageEvent, ...] = tuple(MessageEvent)

    @model_validator(mode="after")
    def _complete(self) -> Target:
        if sum(map(bool, (self.url, self.url_env, self.url_file))) != 1:
            raise ValueError("needs exactly one of url, url_env and url_file")
        secrets = sum(map(bool, (self.secret_env, self.secret_file)))
        if self.kind == "webhook" and secrets != 1:
            raise ValueError("a webhook needs one of secret_env and secret_file")
        if self.kind == "apprise" and secrets:
            raise ValueError("only webhooks are signed: leave secret_env and secret_file out")
        return self

    def address(self, directory: Path) -> str:
        """Return the address.

        Raises:
            BadInputError: the variable or file is missing, or the address is not allowed.
        """
        found = self.url or _secret(self.url_env, self.url_file, directory, "url")
        scheme = found.partition(":")[0].lower()
        if self.kind == "apprise" and scheme in _AROUND_THE_GUARD:
            raise BadInputError(
                f'an apprise target can\'t be {scheme}://: use kind = "webhook"', field="url"
            )
        return found

    def secret(self, directory: Path) -> str:
        """Return the key of the signature.

        Raises:
            BadInputError: the variable or file is missing.
        """
        return _secret(self.secret_env, self.secret_file, directory, "secret")


def _secret(variable: str, file: str, directory: Path, what: str) -> str:
    if variable:
        value = os.environ.get(variable, "").strip()
        missing = f"the variable {variable} is not set"
    else:
        try:
            value = (directory / file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError(f"{what}_file: {file} can't be read", field=what) from error
        missing = f"{what}_file: {file} is empty"
    if not value:
        raise BadInputError(missing, field=what)
    return value


class AlertConfig(_Table):
    """Everything that ``perfbisect.toml`` says of alerts."""

    directory: Path
    alerts: AlertsTable = AlertsTable()
    notify: Mapping[str, Target] = Field(default_factory=dict)

    def policy_for(self, own: Mapping[str, Any]) -> Policy:
        """Return the policy of a series: its own words on top of ``[alerts.policy]``.

        Args:
            own: the table ``[series.NAME.policy]``; empty: none.

        Raises:
            BadInputError: it can't be right; names the key.
        """
        told = self.alerts.policy.model_dump(exclude_unset=True)
        return _valid(Policy, {**told, **own}, "policy")

    def told(self, policy: Policy, event: MessageEvent) -> list[str]:
        """Return the names of the targets that are told of an event."""
        names = sorted(self.notify) if policy.tell is None else policy.tell
        return [name for name in names if event in self.events_of(name)]

    def events_of(self, name: str) -> tuple[MessageEvent, ...]:
        """Return the events that a target wants; none if there is no such target."""
        target = self.notify.get(name)
        return () if target is None else target.events


def load_alert_config(directory: Path | None) -> AlertConfig:
    """Read ``perfbisect.toml`` of a directory (None: the current one); without one, the defaults.

    Raises:
        BadInputError: it is no TOML, or what it says of alerts can't be right.
    """
    place = (directory or Path.cwd()).resolve()
    file = place / PROJECT_FILE
    document = read_toml(file) if file.is_file() else {}
    tables: dict[str, Any] = {key: document[key] for key in ("alerts", "notify") if key in document}
    found = _valid(AlertConfig, {"directory": place, **tables}, str(file))
    _check_names(found, document, file)
    return found


def _check_names(found: AlertConfig, document: Mapping[str, Any], file: Path) -> None:
    """Refuse policies that tell somebody who is not there, or that can't be read.

    Raises:
        BadInputError: names the key.
    """
    policies: dict[str, Any] = {"alerts": {}}
    series = document.get("series")
    for name, table in series.items() if isinstance(series, dict) else ():
        if isinstance(table, dict) and isinstance(table.get("policy"), dict):
            policies[f"series.{name}"] = table["policy"]
    for where, own in policies.items():
        try:
            tell = found.policy_for(own).tell or ()
        except BadInputError as error:
            raise BadInputError(f"{file}: {where}.{error.message}", field=error.field) from error
        for name in tell:
            if name not in found.notify:
                known = ", ".join(sorted(found.notify)) or "none"
                raise BadInputError(
                    f"{file}: {where}.policy.tell: no [notify.{name}]; known: {known}",
                    field="tell",
                    value=name,
                )


def _valid(model: type[_Model], data: Mapping[str, Any], where: str) -> _Model:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        message = str(first["msg"]).removeprefix("Value error, ")
        raise BadInputError(f"{where}: {key}: {message}", field=key) from error
