"""Where it was built and measured: hosts, Pythons, images, wheels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfbisect.reports.document import Block, bullets, table
from perfbisect.reports.words import short
from perfbisect.units import format_size

#: Facts of a host in this order, as people say them.
_FACTS = (
    ("cpu", "{}"),
    ("cores", "{} cores"),
    ("governor", "governor {}"),
    ("system", "{}"),
    ("kernel", "kernel {}"),
)


def environment_blocks(dossier: Mapping[str, Any]) -> list[Block]:
    """Return hosts, Pythons and images of runs, the place of builds, and wheels by SHA-256."""
    items = [(f"Host {host.get('name')}", _host(host)) for host in dossier.get("hosts") or ()]
    items.append(("Python of the benchmark", ", ".join(dossier.get("pythons") or ())))
    items.append(("Image of the benchmark", ", ".join(dossier.get("images") or ())))
    items += [("Built by", text) for text in dict.fromkeys(_builders(dossier))]
    wheels = [
        (short(str(wheel.get("commit"))), wheel.get("filename"), wheel.get("sha256"))
        for wheel in dossier.get("wheels") or ()
    ]
    shown: list[Block] = (
        [table(("commit", "wheel", "sha256"), wheels, folded=f"{len(wheels)} wheels by SHA-256")]
        if wheels
        else []
    )
    return [*bullets(items), *shown]


def _host(host: Mapping[str, Any]) -> str:
    facts = host.get("facts") or {}
    words = [form.format(facts[key]) for key, form in _FACTS if facts.get(key)]
    if isinstance(facts.get("memory_bytes"), int):
        words.insert(2, f"{format_size(facts['memory_bytes'])} of memory")
    if facts.get("virtual"):
        words.append("a virtual machine")
    words += [
        f"{gpu.get('name', 'GPU')}, driver {gpu.get('driver_version', '?')}"
        for gpu in facts.get("gpus") or ()
        if isinstance(gpu, Mapping)
    ]
    return ", ".join(words) or "nothing is known of it"


def _builders(dossier: Mapping[str, Any]) -> list[str]:
    told = []
    for build in dossier.get("builds") or ():
        place = build.get("place") or {}
        told.append(", ".join(f"{key} {value}" for key, value in place.items()))
    return [text for text in told if text]
