"""Every layer against torch, with the same weights."""

from __future__ import annotations

import pytest
import torch

from pyflame import nn
from tests.chosen import chosen
from tests.nn.compare import Batches, Case, Fixed, case, made

IMAGE = (2, 4, 7, 6)
VOLUME = (2, 4, 5, 4, 6)
INDICES = Fixed([[1, 0, 4], [4, 4, 2]])

LAYERS = [
    case("Identity", 3, unused=True),
    case("Linear", 3, 5),
    case("Linear", 3, 5, bias=False, inputs=(2, 4, 3)),
    case("Linear", 3, 1, inputs=(3,)),
    case("Bilinear", 3, 4, 5, inputs=[(2, 3), (2, 4)]),
    case("Bilinear", 3, 4, 5, bias=False, inputs=[(2, 6, 3), (2, 6, 4)]),
    case("Flatten", inputs=(2, 3, 4)),
    case("Flatten", 0, 1, inputs=(2, 3, 4)),
    case("Unflatten", 1, (2, 3), inputs=(4, 6)),
    # --- embeddings
    case("Embedding", 5, 3, inputs=[INDICES]),
    case("Embedding", 5, 3, padding_idx=4, inputs=[INDICES]),
    case("Embedding", 5, 3, padding_idx=-1, inputs=[INDICES]),
    case("Embedding", 5, 3, max_norm=1.0, inputs=[INDICES]),
    case("Embedding", 5, 3, max_norm=1.5, norm_type=1.0, scale_grad_by_freq=True, inputs=[INDICES]),
    case("EmbeddingBag", 5, 3, inputs=[INDICES]),
    case("EmbeddingBag", 5, 3, mode="sum", padding_idx=4, inputs=[INDICES]),
    case("EmbeddingBag", 5, 3, mode="max", inputs=[INDICES]),
    case("EmbeddingBag", 5, 3, mode="mean", inputs=[Fixed([1, 0, 4, 2, 2]), Fixed([0, 2, 2])]),
    case("EmbeddingBag", 5, 3, mode="max", padding_idx=0, inputs=[Fixed([1, 0, 4, 2, 2]), Fixed([0, 2])]),
    case("EmbeddingBag", 5, 3, mode="sum", include_last_offset=True, inputs=[Fixed([1, 0, 4]), Fixed([0, 2, 3])]),
    # --- convolutions
    case("Conv1d", 4, 6, 3, inputs=(2, 4, 9)),
    case("Conv1d", 4, 6, 4, padding="same", padding_mode="circular", inputs=(2, 4, 9)),
    case("Conv1d", 4, 6, 3, padding="same", dilation=2, inputs=(2, 4, 9)),
    case("Conv1d", 4, 6, 4, padding="same", inputs=(4, 9)),
    case("Conv2d", 4, 6, 3, padding=1, inputs=IMAGE),
    case("Conv2d", 4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2, bias=False, inputs=IMAGE),
    case("Conv2d", 4, 6, 3, padding=2, padding_mode="reflect", inputs=IMAGE),
    case("Conv2d", 4, 6, 3, padding=(1, 2), padding_mode="replicate", inputs=IMAGE),
    case("Conv2d", 4, 4, 3, padding="valid", groups=4, padding_mode="reflect", inputs=IMAGE),
    case("Conv3d", 4, 3, 2, padding=(0, 1, 0), inputs=VOLUME),
    case("ConvTranspose1d", 4, 6, 3, stride=2, inputs=(2, 4, 5)),
    case("ConvTranspose2d", 4, 6, 3, stride=2, padding=1, output_padding=1, groups=2, inputs=IMAGE),
    case("ConvTranspose2d", 4, 2, (2, 3), dilation=2, bias=False, inputs=(4, 5, 3)),
    case("ConvTranspose3d", 4, 3, 2, stride=2, inputs=(1, 4, 2, 3, 2)),
    # --- pools
    case("MaxPool1d", 3, inputs=(2, 3, 10)),
    case("MaxPool2d", 2, inputs=IMAGE),
    case("MaxPool2d", (3, 2), stride=2, padding=1, dilation=1, ceil_mode=True, inputs=IMAGE),
    case("MaxPool2d", 2, return_indices=True, inputs=IMAGE),
    case("MaxPool3d", 2, inputs=VOLUME),
    case("AvgPool1d", 3, stride=2, padding=1, inputs=(2, 3, 10)),
    case("AvgPool2d", 3, stride=2, padding=1, ceil_mode=True, count_include_pad=False, inputs=IMAGE),
    case("AvgPool2d", 2, divisor_override=3, inputs=(4, 7, 6)),
    case("AvgPool3d", 2, inputs=VOLUME),
    case("AdaptiveAvgPool1d", 4, inputs=(2, 3, 10)),
    case("AdaptiveAvgPool2d", (None, 1), inputs=IMAGE),
    case("AdaptiveAvgPool3d", 2, inputs=VOLUME),
    case("AdaptiveMaxPool1d", 4, return_indices=True, inputs=(2, 3, 10)),
    case("AdaptiveMaxPool2d", (3, 2), inputs=IMAGE),
    case("AdaptiveMaxPool3d", 2, inputs=VOLUME),
    # --- norms
    case("BatchNorm1d", 3, inputs=(5, 3)),
    case("BatchNorm1d", 3, eps=1e-3, momentum=0.3, inputs=(5, 3, 4)),
    case("BatchNorm1d", 3, bias=False, inputs=(5, 3)),
    case("BatchNorm2d", 4, inputs=IMAGE),
    case("BatchNorm2d", 4, momentum=None, affine=False, inputs=IMAGE),
    case("BatchNorm2d", 4, track_running_stats=False, inputs=IMAGE),
    case("BatchNorm3d", 4, inputs=VOLUME),
    case("LayerNorm", 6, inputs=IMAGE),
    case("LayerNorm", (7, 6), eps=1e-3, bias=False, inputs=IMAGE),
    case("LayerNorm", [6], elementwise_affine=False, inputs=IMAGE),
    case("RMSNorm", 6, inputs=IMAGE),
    case("RMSNorm", (7, 6), eps=1e-3, elementwise_affine=False, inputs=IMAGE),
    case("GroupNorm", 2, 4, inputs=IMAGE),
    case("GroupNorm", 4, 4, eps=1e-3, bias=False, inputs=(2, 4, 5)),
    case("GroupNorm", 2, 4, affine=False, inputs=IMAGE),
    case("InstanceNorm1d", 4, inputs=(4, 5)),
    case("InstanceNorm1d", 4, affine=True, track_running_stats=True, inputs=(3, 4, 5)),
    case("InstanceNorm2d", 4, track_running_stats=True, momentum=0.3, inputs=IMAGE),
    case("InstanceNorm3d", 4, affine=True, inputs=VOLUME),
    # --- padding and resizing
    case("ConstantPad1d", 2, 1.5, inputs=(2, 3, 4)),
    case("ConstantPad2d", (1, 0, 2, 1), -1.0, inputs=IMAGE),
    case("ConstantPad3d", 1, 0.5, inputs=VOLUME),
    case("ZeroPad1d", 1, inputs=(2, 3, 4)),
    case("ZeroPad2d", (1, 0, 2, 1), inputs=IMAGE),
    case("ZeroPad3d", 1, inputs=VOLUME),
    case("ReflectionPad1d", 2, inputs=(2, 3, 4)),
    case("ReflectionPad2d", (1, 0, 2, 1), inputs=IMAGE),
    case("ReflectionPad3d", 1, inputs=VOLUME),
    case("ReplicationPad1d", 2, inputs=(2, 3, 4)),
    case("ReplicationPad2d", (1, 0, 2, 1), inputs=IMAGE),
    case("ReplicationPad3d", 1, inputs=VOLUME),
    case("CircularPad1d", 2, inputs=(2, 3, 4)),
    case("CircularPad2d", (1, 0, 2, 1), inputs=IMAGE),
    case("CircularPad3d", 1, inputs=VOLUME),
    case("Upsample", scale_factor=2, inputs=(2, 3, 4)),
    case("Upsample", scale_factor=1.5, inputs=IMAGE),
    case("Upsample", size=(5, 9), mode="nearest-exact", inputs=IMAGE),
    case("Upsample", scale_factor=2.5, mode="linear", inputs=(2, 3, 4)),
    case("Upsample", scale_factor=(2.0, 0.5), mode="bilinear", inputs=IMAGE),
    case("Upsample", size=(13, 4), mode="bilinear", align_corners=True, inputs=IMAGE),
    case("Upsample", size=3, mode="trilinear", inputs=VOLUME),
    case("PixelShuffle", 2, inputs=(2, 8, 3, 4)),
    case("PixelUnshuffle", 2, inputs=(2, 3, 4, 6)),
    case("Unfold", (2, 3), padding=1, stride=2, inputs=IMAGE),
    case("Fold", (4, 5), (2, 2), inputs=(2, 12, 12)),
    # --- in evaluation, and what is certain in training
    case("Dropout", 0.0),
    case("Dropout", 1.0),
    case("Dropout2d", 0.0, inputs=IMAGE),
    case("AlphaDropout", 1.0),
    case("FeatureAlphaDropout", 0.0, inputs=IMAGE),
]


@pytest.fixture(scope="module")
def batches(request: pytest.FixtureRequest) -> Batches:
    return Batches(chosen(request, test_layer, "c"))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")  # torch on its own speed
@pytest.mark.parametrize("c", LAYERS, ids=lambda c: c.id)
def test_layer(c: Case, batches: Batches) -> None:
    batches.check(c)


@pytest.mark.parametrize("c", LAYERS, ids=lambda c: c.id)
def test_repr(c: Case) -> None:
    assert repr(made(nn, lambda a: a, c)) == repr(made(torch.nn, torch.from_numpy, c))
