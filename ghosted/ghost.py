"""What says a ``ghost.json``? Everything that an exported model's numbers depend on, as plain data.

It lies in every export and, once more, in the header of an adapter's ``ghost.safetensors``, so that this one file is
enough. Files of other people are read here: nothing of one is believed before it was checked.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ghosted.errors import InputError
from ghosted.plain import from_plain, to_plain
from ghosted.removed import RemovedBlocks, gap_name

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FILE, FORMAT, VERSION = "ghost.json", "ghosted layers", 1
LARGEST = 8_000_000
"""Bytes of a ``ghost.json``; ours have some thousand, those of low-rank fits some hundred thousand."""
STRUCTURES = ("full", "diagonal", "scalar")
DTYPES = ("float32", "bfloat16")
"""What a base model can have run in."""
FEATURES = ("state", "normalised", "feed_forward", "joint")


@dataclass(frozen=True)
class Base:
    """The model that was cut.

    Attributes:
        name: catalogue name or Hub id; the bare name of a folder or ``.gguf`` that only its author has.
        kind: ``offline``, ``hub``, ``folder``, ``gguf`` or ``memory``.
        label: as people read it.
        revision: commit on the Hub.
        architecture: ``model_type`` of its configuration.
        blocks: L.
        width: C.
        fingerprint: :func:`weights_fingerprint`.
        dtype: ``float32`` or ``bfloat16``: what it ran in while the numbers were measured.
        licence: one line.
    """

    name: str
    kind: str
    label: str
    architecture: str
    blocks: int
    width: int
    fingerprint: str
    dtype: str
    licence: str
    revision: str | None = None


@dataclass(frozen=True)
class RepairRecord:
    """The repair of one gap: what :meth:`ghosted.operators.Fitted.config` says, and where it stands."""

    gap: str
    feature: str
    structure: str = "full"
    width: int | None = None
    added_parameters: int = 0
    rank: int | None = None
    dof: float | None = None
    ridge: float | None = None
    condition: float | None = None
    note: str | None = None
    error_by_rank: list[float] | None = None


@dataclass(frozen=True)
class Numbers:
    """What one method was measured to do; the methods of one export share one protocol per text."""

    method: str
    calibration: float | None = None
    held_out: float | None = None
    median: float | None = None
    perplexity: dict[str, float] = field(default_factory=dict)
    damage: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ghost:
    """One exported model.

    Attributes:
        kind: the format it was exported in: ``adapter``, ``checkpoint``, ``merged`` or ``mergekit``.
        base: the model that was cut.
        removed: which blocks are gone, in the grammar of :mod:`ghosted.removed`.
        method: how the gaps are repaired.
        repairs: one entry per gap, in order.
        experiment: the settings that made it; files by the sha256 of their content.
        dense_perplexity: of the base model, by text.
        numbers: of plain pruning and of ``method``.
        protocols: of each text, as :class:`~ghosted.results.Protocol`.
        warnings: sentences a reader must see beside the numbers.
        made_by: versions of what wrote it.
    """

    kind: str
    base: Base
    removed: str
    method: str
    repairs: list[RepairRecord]
    experiment: dict[str, Any] = field(default_factory=dict)
    dense_perplexity: dict[str, float] = field(default_factory=dict)
    numbers: list[Numbers] = field(default_factory=list)
    protocols: dict[str, dict[str, Any]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    made_by: dict[str, str] = field(default_factory=dict)

    @property
    def removed_blocks(self) -> RemovedBlocks:
        """Which blocks are gone."""
        return RemovedBlocks.parse(self.removed, self.base.blocks)

    def to_text(self) -> str:
        """Return the file's content."""
        said = {"format": FORMAT, "version": VERSION} | to_plain(self)
        return json.dumps(said, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_text(cls, text: str, where: str = FILE) -> Ghost:
        """Read a file's content.

        Raises:
            InputError: it is not one of ours, of another version, damaged, or does not make sense.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise InputError(f"{where} is not JSON: it was not exported by the Ghosted Layers Explorer, or it is "
                             "damaged.") from None  # fmt: skip
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise InputError(f"{where} was not exported by the Ghosted Layers Explorer.")
        if data.get("version") != VERSION:
            raise InputError(f"{where} is of version {str(data.get('version'))[:20]!r}, and this program reads version "
                             f"{VERSION}: export it again with the same version of both.")  # fmt: skip
        ghost = from_plain(cls, data, where)
        ghost.check(where)
        return ghost

    @classmethod
    def read(cls, path: Path) -> Ghost:
        """Read a ``ghost.json``.

        Raises:
            InputError: it cannot be read, or as :meth:`from_text`.
        """
        try:
            if path.stat().st_size > LARGEST:
                raise InputError(f"{path.name} is larger than {LARGEST // 10**6} MB; one of ours never is.")
            text = path.read_bytes().decode("utf-8")
        except OSError as error:
            raise InputError(f"There is no readable {path.name} in {path.parent.name or 'this folder'} "
                             f"({error.strerror}).") from error  # fmt: skip
        except UnicodeDecodeError:
            raise InputError(f"{path.name} is damaged: it is no text; export it again.") from None
        return cls.from_text(text, path.name)

    def check(self, where: str) -> None:
        """Raise :class:`InputError` where the parts contradict each other."""
        base = self.base
        if not (0 < base.blocks <= 2_000 and 0 < base.width <= 262_144):
            raise InputError(f"{where} describes no model: {base.blocks} blocks of width {base.width}.")
        names = [gap_name(gap) for gap in self.removed_blocks.gaps]
        if [repair.gap for repair in self.repairs] != names:
            raise InputError(f"{where} removes blocks {', '.join(names) or 'none'}, but repairs "
                             f"{', '.join(repair.gap[:20] for repair in self.repairs) or 'nothing'}.")  # fmt: skip
        for repair in self.repairs:
            if repair.feature not in FEATURES or repair.structure not in STRUCTURES:
                raise InputError(f"{where} has a repair that this program does not know "
                                 f"({repair.feature[:20]}, {repair.structure[:20]}).")  # fmt: skip
            if repair.width is not None and not base.width <= repair.width <= 2**24:
                raise InputError(f"{where} has a repair of width {repair.width} for a model of width {base.width}.")
        if base.dtype not in DTYPES:
            raise InputError(f"{where} names the dtype {base.dtype[:20]!r}, which no export of this program has; "
                             "export it again.")  # fmt: skip
        self._check_recipe(where)

    def _check_recipe(self, where: str) -> None:
        """Raise :class:`InputError` where the settings are those of another model than this one."""
        from ghosted import operators

        if self.method not in operators.methods():
            raise InputError(f"{where} names the method {self.method[:40]!r}, which this program does not know; export "
                             "it again.")  # fmt: skip
        remove = self.experiment.get("remove")
        if not remove or self.experiment.get("criterion", "manual") != "manual":
            return  # what a criterion chose stands nowhere else
        if not isinstance(remove, str) or RemovedBlocks.parse(remove) != self.removed_blocks:
            raise InputError(f"{where} contradicts itself: blocks {self.removed[:40]} are gone, and its experiment "
                             f"removes {str(remove)[:40]}; export it again.")  # fmt: skip


def check_folder(folder: Path) -> None:
    """Raise :class:`InputError` unless ``folder`` is one that holds an export."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; name the folder that `export` wrote.")
    if not (folder / FILE).is_file():
        raise InputError(f"{folder} holds no export of Ghosted Layers (there is no {FILE} in it); name the folder that "
                         "`export` wrote.")  # fmt: skip


def weights_fingerprint(model: PreTrainedModel) -> str:
    """Return a sha256 (hex) over name, shape and bfloat16 value of every parameter.

    The same in float32 and in bfloat16, so that an adapter recognises its base in either.
    """
    import torch

    digest = hashlib.sha256()
    for name, tensor in model.named_parameters():
        digest.update(f"{name} {tuple(tensor.shape)} ".encode())
        if tensor.numel():
            plain = tensor.detach().to("cpu", torch.bfloat16).reshape(-1).contiguous().view(torch.uint8)
            digest.update(plain.numpy().data)
    return digest.hexdigest()
