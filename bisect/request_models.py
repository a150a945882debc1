"""What people and programs may ask for, validated before anything is done."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError, PydanticKnownError

from perfbisect.core.states import Find
from perfbisect.git.source import CREDENTIALS, holds_credentials

_T = TypeVar("_T")

Text = Annotated[str, Field(min_length=1, max_length=2000)]
#: Name of an environment variable, and its value.
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=200)]
Value = Annotated[str, Field(max_length=10_000)]


def _no_credentials(url: str | None) -> str | None:
    """Refuse what should be secret: it would be stored and shown."""
    if url is not None and holds_credentials(url):
        raise PydanticCustomError("credentials", CREDENTIALS.removeprefix("it ").capitalize())
    return url


class RecipeSwitch(StrEnum):
    """An option of a Bazel recipe that a request may turn on or off."""

    CUDA = "cuda"
    XLA = "xla"
    TENSORRT = "tensorrt"
    NUMA = "numa"
    MKL = "mkl"


class BisectionRequest(BaseModel):
    """A bisection as submitted by command line, API, form or alert."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    package: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None,
        description="Package of the index whose published wheels are the axis; together with a "
        "repository, its nightlies are wheels on the axis of commits that need no build.",
        examples=["tensorflow-cpu"],
    )
    repository: Annotated[Text | None, AfterValidator(_no_credentials)] = Field(
        default=None,
        validate_default=True,
        description="Name of a known repository, its URL, or (command line only) a local path. "
        "Required without a package.",
        examples=["https://github.com/tensorflow/tensorflow"],
    )
    good: Text = Field(
        description="Revision of the good end; without a repository, a version or a night's day.",
        examples=["3e0ad8a004"],
    )
    bad: Text = Field(description="The same of the bad end.", examples=["3205135"])
    recipe: Text | dict[str, Any] | None = Field(
        default=None,
        validate_default=True,
        description="Name of a recipe, or its definition. Required with a repository.",
        examples=["tf2-cuda10"],
    )
    recipe_options: dict[RecipeSwitch, bool] = Field(
        default_factory=dict,
        description="Options of a Bazel recipe to turn on or off; others are as the recipe says.",
        examples=[{"xla": True, "tensorrt": False}],
    )
    benchmark: Text | dict[str, Any] = Field(
        description="Name of a benchmark, or its definition.", examples=["resnet50-train-cpu"]
    )
    env: dict[Variable, Value] = Field(
        default_factory=dict,
        max_length=100,
        description="Environment variables on top of the benchmark's: another benchmark.",
        examples=[{"TF_XLA_FLAGS": "--tf_xla_auto_jit=2"}],
    )
    bisect_companion: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        default=None,
        description="Name of a companion of the benchmark: its commits are the axis, and `good` "
        "and `bad` are revisions of it. What is measured otherwise is the wheel of `at`.",
        examples=["models"],
    )
    at: Text | None = Field(
        default=None,
        validate_default=True,
        description="With bisect_companion: version of the package, or revision of the repository "
        "whose wheel is there already.",
        examples=["2.14.0"],
    )
    threshold: str | None = Field(
        default=None,
        max_length=40,
        description="Absolute value ('6000'), share of the good end ('70%'), or nothing: midpoint.",
        examples=["70%"],
    )
    min_effect: str = Field(
        default="3%", max_length=20, description="Smallest relative change worth naming."
    )
    find: Find = Find.ALL
    confidence: float = Field(default=0.99, ge=0.5, le=0.9999)
    max_runs: int | None = Field(default=None, ge=1, le=100_000)
    max_builds: int | None = Field(default=None, ge=0, le=100_000)
    max_time: str | None = Field(default=None, max_length=20, examples=["6h"])
    probe: int = Field(
        default=0, ge=0, le=1000, description="Positions to measure even if the ends look alike."
    )
    all_parents: bool = Field(default=False, description="All commits, not first parents only.")
    prove: bool = Field(
        default=True,
        description="Prove each verified culprit: revert it on the bad end, pick it on the good.",
    )
    paths: tuple[Text, ...] = Field(
        default=(), max_length=100, description="Only commits that touch these paths."
    )
    carry: tuple[Annotated[str, Field(min_length=1, max_length=1_000_000)], ...] = Field(
        default=(),
        max_length=20,
        description="Patches (their text) that are carried along: applied to every commit that "
        "does not have them and to which they apply.",
    )
    carry_pick: tuple[Text, ...] = Field(
        default=(), max_length=20, description="Commits that are carried along in the same way."
    )
    prereleases: bool | None = Field(
        default=None,
        description="Published pre-releases between the ends; null: if both ends are some.",
    )

    @field_validator("repository", "recipe")
    @classmethod
    def _needed(cls, value: _T, info: ValidationInfo) -> _T:
        """Commits need a repository and a recipe; published wheels alone can have neither."""
        told = info.data
        if info.field_name == "recipe" and "repository" not in told:
            # That field is wrong itself: nothing follows from it.
            return value
        if value is None and (told.get("package") is None or info.field_name == "recipe"):
            if info.field_name == "repository" or told.get("repository") is not None:
                raise PydanticKnownError("missing")
        elif value is not None and info.field_name == "recipe" and told.get("repository") is None:
            raise PydanticCustomError(
                "no_repository", "Published wheels are not built: leave the recipe out"
            )
        return value

    @field_validator("at")
    @classmethod
    def _pinned(cls, value: str | None, info: ValidationInfo) -> str | None:
        """A companion is bisected with one wheel; otherwise wheels are what the axis is made of."""
        if info.data.get("bisect_companion") is not None:
            if value is None:
                raise PydanticKnownError("missing")
        elif value is not None:
            raise PydanticCustomError("no_companion", "Only with a companion that is bisected")
        return value

    @field_validator("recipe_options")
    @classmethod
    def _of_recipes(cls, value: _T, info: ValidationInfo) -> _T:
        """What is not built has no options."""
        if value and info.data.get("repository", "wrong itself") is None:
            raise PydanticCustomError("no_repository", "Published wheels are not built")
        return value

    @field_validator("all_parents", "paths")
    @classmethod
    def _of_commits(cls, value: _T, info: ValidationInfo) -> _T:
        """What chooses among commits means nothing for versions."""
        told = info.data
        versions = told.get("repository") is None and told.get("package") is not None
        if value and versions and told.get("bisect_companion") is None:
            raise PydanticCustomError("no_repository", "Versions have no commits to choose from")
        return value

    @field_validator("carry", "carry_pick")
    @classmethod
    def _of_built_commits(cls, value: _T, info: ValidationInfo) -> _T:
        """What is carried along goes into builds."""
        told = info.data
        if value and told.get("bisect_companion") is not None:
            raise PydanticCustomError(
                "no_companion", "A companion is used as it was: nothing can be carried along"
            )
        if value and told.get("repository") is None and told.get("package") is not None:
            raise PydanticCustomError(
                "no_repository", "Published wheels are not built: nothing can be carried along"
            )
        return value

    @field_validator("prereleases")
    @classmethod
    def _of_versions(cls, value: _T, info: ValidationInfo) -> _T:
        """What chooses among versions means nothing for commits."""
        if value is not None and info.data.get("package") is None:
            raise PydanticCustomError("no_package", "Commits have no pre-releases: name a package")
        if value is not None and info.data.get("repository") is not None:
            raise PydanticCustomError(
                "no_package", "Among commits, every wheel of a commit is taken: leave it out"
            )
        return value


class _Changes(BaseModel):
    """What is done to a base, and the environment it is measured in."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    revert: tuple[Text, ...] = Field(
        default=(), max_length=200, description="Commits to revert, in this order."
    )
    pick: tuple[Text, ...] = Field(
        default=(), max_length=200, description="Commits to cherry-pick, in this order."
    )
    patch: tuple[Annotated[str, Field(min_length=1, max_length=1_000_000)], ...] = Field(
        default=(), max_length=20, description="Patches to apply last: their text, not a file name."
    )
    env: dict[Variable, Value] = Field(
        default_factory=dict,
        max_length=100,
        description="Environment variables on top of the benchmark's.",
        examples=[{"TF_XLA_FLAGS": "--tf_xla_auto_jit=2"}],
    )
    name: str = Field(default="", max_length=200, description="For people; empty: made up.")


class ArmRequest(_Changes):
    """A revision, and environment variables for the benchmark, to be measured."""

    base: Text = Field(description="Commit the changes are applied to.", examples=["r2.0"])


class ArmSubmission(_Changes):
    """An arm as submitted: of a bisection's experiment, the base is known."""

    base: Text | None = Field(
        default=None,
        description="Commit the changes are applied to; nothing: the bad end of `bisection`.",
        examples=["r2.0"],
    )


class _Measuring(BaseModel):
    """How an experiment is measured, and what else it looks for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_effect: str = Field(default="3%", max_length=20)
    max_runs: int | None = Field(default=None, ge=1, le=100_000)
    max_time: str | None = Field(default=None, max_length=20, examples=["6h"])
    minimise_reverts: bool = Field(
        default=False,
        description="Find the smallest subset of the first arm's reverts that restores the value.",
    )
    carry: tuple[Annotated[str, Field(min_length=1, max_length=1_000_000)], ...] = Field(
        default=(),
        max_length=20,
        description="Patches (their text) that are carried along: applied, before an arm's own "
        "changes, to every base that does not have them and to which they apply.",
    )
    carry_pick: tuple[Text, ...] = Field(
        default=(), max_length=20, description="Commits that are carried along in the same way."
    )
    with_prerequisites: bool = Field(
        default=False,
        description="Where a pick conflicts, find the smallest set of earlier commits with which "
        "it applies, and if that does not build, one that does.",
    )


class ExperimentRequest(_Measuring):
    """Revisions with changes, measured against a reference on one host."""

    repository: Annotated[Text, AfterValidator(_no_credentials)] = Field(
        description="Name of a known repository, or its URL."
    )
    recipe: Text | dict[str, Any]
    benchmark: Text | dict[str, Any]
    arms: tuple[ArmRequest, ...] = Field(min_length=1, max_length=50)
    against: ArmRequest | None = Field(
        default=None, description="The reference; nothing: the first arm's base, unchanged."
    )


class ExperimentSubmission(_Measuring):
    """An experiment as submitted: what it leaves out is taken from the bisection it names."""

    bisection: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None,
        description="Take repository, recipe, benchmark and base (its bad end) from this "
        "bisection; with `minimise_reverts` and without arms, the commits of its regressions, too.",
    )
    repository: Annotated[Text, AfterValidator(_no_credentials)] | None = Field(
        default=None,
        validate_default=True,
        description="Name of a known repository, or its URL. Required without a bisection.",
    )
    recipe: Text | dict[str, Any] | None = Field(default=None, validate_default=True)
    benchmark: Text | dict[str, Any] | None = Field(default=None, validate_default=True)
    arms: tuple[ArmSubmission, ...] = Field(default=(), max_length=50, validate_default=True)
    against: ArmSubmission | None = Field(
        default=None, description="The reference; nothing: the first arm's base, unchanged."
    )

    @field_validator("repository", "recipe", "benchmark", "arms")
    @classmethod
    def _needed(cls, value: _T, info: ValidationInfo) -> _T:
        """Without a bisection there is nothing to take it from."""
        if not value and info.data.get("bisection") is None:
            raise PydanticKnownError("missing")
        return value

    @field_validator("arms", "against")
    @classmethod
    def _based(cls, value: _T, info: ValidationInfo) -> _T:
        """Without a bisection each arm needs its own base."""
        arms = value if isinstance(value, tuple) else (value,)
        unbased = any(isinstance(arm, ArmSubmission) and arm.base is None for arm in arms)
        if unbased and info.data.get("bisection") is None:
            raise PydanticCustomError("no_base", "Each arm needs a base, or name a bisection")
        return value
