"""What a claim is judged by: the studies of a reproduction, or one results folder by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from normlab import measures
from normlab.analysis.frames import Results, load
from normlab.manifests import ResultsError, read_manifest, read_object, read_study
from normlab.measures import Measure, read_measure


@dataclass(frozen=True)
class Evidence:
    """Studies by name, read when they are first asked for.

    folders   where each study lies
    manifest  of the reproduction; that of the study itself for a single results folder
    """

    root: Path
    folders: Mapping[str, Path]
    manifest: Mapping[str, Any]
    _read: dict[str, Results | Measure] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(cls, path: str | Path) -> Evidence:
        """A reproduction, a training study or a measure; ResultsError if the folder is none of them."""
        root = Path(path)
        if (root / measures.NAME).is_file():
            measure = _measure(root)
            return cls(root, {measure.name: root}, {"command": measure.command, **measure.environment})
        if not (root / "manifest.json").is_file():
            what = "has no manifest.json" if root.is_dir() else "does not exist"
            raise ResultsError(f"{root}: {what}: expected a results folder, such as results/article or results/postln")
        manifest = read_object(root / "manifest.json")
        if manifest.get("kind") != "reproduction":
            return cls(root, {read_study(root, read_manifest(root)).name: root}, manifest)
        try:
            listed = {study["name"]: root / study["folder"] for study in manifest["studies"]}
        except (KeyError, TypeError) as error:
            raise ResultsError(
                f"{root / 'manifest.json'}: studies: expected name and folder of each: {error}"
            ) from error
        there = {name: at for name, at in listed.items() if _holds_something(at)}
        return cls(root, there, manifest)

    @property
    def names(self) -> list[str]:
        """Names of the studies that are there."""
        return list(self.folders)

    @property
    def whole(self) -> bool:
        """Whether this is a reproduction rather than one results folder."""
        return self.manifest.get("kind") == "reproduction"

    @property
    def quick(self) -> bool:
        """Whether the reproduction was shortened."""
        return bool(self.manifest.get("quick"))

    @property
    def shortened(self) -> tuple[str, ...]:
        """What `--quick` shortened, a sentence each."""
        return tuple(self.manifest.get("shortened", ()))

    def results(self, name: str) -> Results | None:
        """The results of a training study; None if it is not there."""
        found = self._study(name)
        return found if isinstance(found, Results) else None

    def measure(self, name: str) -> Measure | None:
        """The measure of that name; None if it is not there."""
        if name in self.folders and name not in self._read and not (self.folders[name] / measures.NAME).is_file():
            return None  # A training study, which takes long to read where it is large.
        found = self._study(name)
        return found if isinstance(found, Measure) else None

    def command(self, name: str) -> str:
        """The canonical command that made the study; empty if it is not there."""
        found = self._study(name)
        if found is None:
            return ""
        return found.command if isinstance(found, Measure) else str(found.manifest.get("command", ""))

    def _study(self, name: str) -> Results | Measure | None:
        if name not in self._read and name in self.folders:
            folder = self.folders[name]
            self._read[name] = _measure(folder) if (folder / measures.NAME).is_file() else load(folder)
        return self._read.get(name)


def _measure(folder: Path) -> Measure:
    try:
        return read_measure(folder)
    except ValueError as error:
        raise ResultsError(str(error)) from error


def _holds_something(folder: Path) -> bool:
    return (folder / measures.NAME).is_file() or (folder / "manifest.json").is_file()
