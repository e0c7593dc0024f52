"""Is there a norm between the last block and the head, and should there be? Seen on the built net, not by its names."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normlab.config.schema import ModelSpec, RunSpec
from normlab.model.decoder import Block, Decoder, build
from normlab.model.norms.base import Identity

PROBE = 8.0  # factor on the stream behind the last block
HELD = 0.5  # a module that lets less than this share of the factor through is a norm; DyT lets a quarter through


@dataclass(frozen=True)
class FinalNormReport:
    """before_head     class of the module whose output is the head's input
    has_final_norm  whether that module stands behind the last block and holds the stream (see `response`)
    wanted          whether the placement asks for one
    response        how much larger the head's input gets when the stream behind the last block is 8 times larger:
                    8 if nothing holds it, 1 if a norm does, between them for a squashing one
    missing         what is missing, "" if nothing
    superfluous     what is there in vain, "" if nothing
    """

    before_head: str
    has_final_norm: bool
    wanted: bool
    response: float
    missing: str
    superfluous: str


def inspect_final_norm(model: Decoder | RunSpec) -> FinalNormReport:
    """Look at a decoder, or at the one that a spec builds: what stands before its head, and whether its placement
    wants a norm there. One forward pass of a single sequence is watched, one more with the stream enlarged."""
    decoder = build([model]) if isinstance(model, RunSpec) else model
    last = decoder.blocks[-1]
    assert isinstance(last, Block)
    before, plain = _watch(decoder, last, 1.0)
    _, enlarged = _watch(decoder, last, PROBE)
    response = float(enlarged.norm() / plain.norm())
    final = before not in set(last.modules()) and response < HELD * PROBE
    wanted = bool(last.ffn_placement.final_norm)
    held = any(not isinstance(norm, Identity) for norm in last.ffn_norms)
    vain = final and held and not wanted
    return FinalNormReport(
        before_head=type(before).__name__,
        has_final_norm=final,
        wanted=wanted,
        response=response,
        missing=_missing(final, wanted, held),
        superfluous="final norm behind a stream that the blocks have normalised already" if vain else "",
    )


def _missing(final: bool, wanted: bool, held: bool) -> str:
    if final:
        return ""
    if wanted:
        return "final norm: nothing holds the grown stream before the head"
    return "" if held else "any norm: the blocks have none and there is no final one"


def _watch(decoder: Decoder, last: nn.Module, factor: float) -> tuple[nn.Module, Tensor]:
    """The module that made the head's input, the outermost of those that passed the same tensor on, and that input.

    What leaves the last block is multiplied by `factor`."""
    made: list[tuple[nn.Module, Tensor]] = []
    seen: list[Tensor] = []

    def enlarge(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output * factor

    def note(module: nn.Module, inputs: Any, output: Tensor) -> None:
        made.append((module, output))

    handles = [last.register_forward_hook(enlarge)]
    handles += [module.register_forward_hook(note) for module in decoder.modules() if module is not decoder.head]
    handles.append(decoder.head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0])))
    try:
        with torch.no_grad():
            tokens_SBT = torch.zeros(len(decoder.embedding.weight), 1, 2, dtype=torch.long)
            decoder(tokens_SBT.to(decoder.embedding.weight.device))
    finally:
        for handle in handles:
            handle.remove()
    makers = [module for module, output in made if output is seen[0]]
    # The decoder's own output are the logits; the last maker is the one nearest to the head.
    return makers[-1], seen[0]


def final_norm_rows() -> list[dict[str, Any]]:
    """The check on some of our own nets, built small: a row each, `model` in words."""
    cases = {
        "pre, layernorm, final norm as the placement says": {"placement": "pre"},
        "pre, layernorm, none": {"placement": "pre", "final_norm": "none"},
        "pre, rmsnorm, final norm of the same kind": {"placement": "pre", "norm": "rmsnorm", "final_norm": "same"},
        "pre, no norm in the blocks, final layernorm": {"placement": "pre", "norm": "none"},
        "pre, no norm in the blocks, the same at the end": {"placement": "pre", "norm": "none", "final_norm": "same"},
        "pre, dyt, final norm of the same kind": {"placement": "pre", "norm": "dyt", "final_norm": "same"},
        "post, layernorm, final norm as the placement says": {"placement": "post"},
        "post, layernorm, final layernorm": {"placement": "post", "final_norm": "layernorm"},
        "post, no norm in the blocks": {"placement": "post", "norm": "none"},
    }
    rows = []
    for words, fields in cases.items():
        spec = RunSpec(model=ModelSpec.model_validate({"depth": 2, "init": "torch", **fields}))
        rows.append({"model": words, **asdict(inspect_final_norm(spec))})
    return rows
