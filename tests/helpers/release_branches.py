"""A history in the manner of a real hunt: layers of slow commits, and a fix to carry over."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.helpers.conducting import FactorRunner
from tests.helpers.repositories import Workshop

#: Images per second without anything slow.
FAST = 7700.0
#: File of a slow commit -> images per second beyond which nothing gets while it is there.
CAPS = {"src/swap.txt": 1600.0, "src/clusters.txt": 2900.0, "src/allreduce.txt": 3900.0}
#: What the fix does for everything that is capped.
FIX = "src/fix.txt"


class LayeredRunner(FactorRunner):
    """As fast as the slowest layer that is in the tree; a run varies by 2%."""

    def factor(self, names: list[str]) -> float:
        if FIX in names:
            return 1.0
        return min([CAPS[name] for name in names if name in CAPS], default=FAST) / FAST


@dataclass
class Releases:
    """Branches ``r2.0`` and ``r1.15`` (both slow), and ``master`` with the fix."""

    shop: Workshop
    #: Name -> SHA: the slow ones by their files, ``prerequisite``, ``fix``, and harmless ones.
    shas: dict[str, str] = field(default_factory=dict)

    @property
    def suspects(self) -> tuple[str, ...]:
        """Harmless and slow commits of r2.0, in their order."""
        return tuple(sha for name, sha in self.shas.items() if name.startswith(("src/", "other")))


def _kernel(**changed: str) -> str:
    lines = [f"line {number}" for number in range(40)]
    for place, text in changed.items():
        lines[int(place[1:])] = text
    return "\n".join(lines) + "\n"


def make_releases(path: Path) -> Releases:
    """Make the repository: r2.0 lacks the commit that the fix was written upon, r1.15 has it."""
    shop = Workshop(path)
    made = Releases(shop)
    shop.commit("base", {"kernel.cc": _kernel(), "src/base.txt": "1.0\n"})
    for number, name in enumerate(CAPS):
        made.shas[f"other{number}"] = shop.commit(
            f"Harmless change {number}", {f"src/other{number}.txt": "1.0\n"}
        )
        made.shas[name] = shop.commit(f"Add {name}", {name: "1.0\n"})
    shop.git("branch", "r2.0")
    made.shas["prerequisite"] = shop.commit("Move the flags", {"kernel.cc": _kernel(L10="flags")})
    shop.git("branch", "r1.15")
    shop.commit("Noise in the same file", {"kernel.cc": _kernel(L10="flags", L30="noise")})
    made.shas["fix"] = shop.commit(
        "Disable the memory optimizer when the JIT is on",
        {"kernel.cc": _kernel(L10="flags", L11="fixed", L30="noise"), FIX: "1.0\n"},
    )
    return made
