"""What all placements share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from normlab.catalogue import Options
from normlab.model.part import Part, Site

if TYPE_CHECKING:
    from torch import Tensor


class Placement(Part):
    """How one sublayer f and its norms join the stream x (S, B, T, D); each sublayer has a placement of its own.

    norms         norms that a sublayer needs, of the stream's width
    inner_norms   norms at the sublayer's inner point: `sublayer(x, norm)` applies one there
    final_norm    whether a norm follows the last block when the config leaves that to the placement (`auto`)
    ramped        whether `forward` sends every branch through `self.ramp`, as `model.residual_ramp` needs
    without_norm  what it would be with norm `none`, as the end of a sentence, where such a net is refused

    `self.layer` (1 .. `self.depth`) and `self.depth` say which block it is in; `self.clock`, a tensor (1,) on the
    device, holds the number of the training step, 1, 2, ... (0 before the first)."""

    norms: ClassVar[int] = 1
    inner_norms: ClassVar[int] = 0
    final_norm: ClassVar[bool] = False
    ramped: ClassVar[bool] = False
    without_norm: ClassVar[str] = ""
    clock: Tensor

    def __init__(
        self,
        width: int,
        lanes: int = 1,
        options: Options | None = None,
        site: Site | None = None,
        ramp_steps: int | None = None,
    ) -> None:
        self.layer, self.depth = (site or Site()).layer, (site or Site()).depth
        self.ramp_steps = None if ramp_steps is None else ramp_steps * self.layer / self.depth
        super().__init__(width, lanes, options, site)

    def gains(self) -> dict[str, float]:
        """Factors on the start values of the sublayer's matrices, by role: value, output, q, k, ffn_in, ffn_out; a
        mixer with a single matrix (mix) takes that of value and output once. Absent: 1."""
        return {}

    def ramp(self, y_SBTD: Tensor) -> Tensor:
        """The branch y as it enters the sum: times min(t / T_l, 1) in a net with a residual ramp."""
        if self.ramp_steps is None:
            return y_SBTD
        return y_SBTD * (self.clock.double() / self.ramp_steps).clamp(max=1.0).to(y_SBTD.dtype)

    def profile(self, x_SBTD: Tensor, sublayer: Any, norms: Sequence[Any], carried: dict[str, Any]) -> Tensor:
        """`forward` once before training, on each lane's first batch, to set start values that hang on activations.
        `carried` goes from one sublayer to the next. The clock stands at 0 here, so `self.ramp` gives 0."""
        return self(x_SBTD, sublayer, norms)

    def forward(self, x_SBTD: Tensor, sublayer: Any, norms: Sequence[Any]) -> Tensor:
        raise AssertionError("a placement defines forward")

    @classmethod
    def refusal(cls, model: Any) -> str | None:
        if model.norm == "none" and cls.without_norm:
            return f"needs a norm: without one {cls.without_norm}"
        return None
