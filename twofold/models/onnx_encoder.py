"""`OnnxEncoder`: a network in the ONNX format, which onnxruntime computes."""

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from twofold.errors import TwofoldError, how_to_install

ONNX = "onnx"  # the name of such an encoder in descriptions
FLOAT, HALF = "tensor(float)", "tensor(float16)"
OUTPUT = "features"  # the output that is used if there are several


class OnnxEncoder(nn.Module):
    """Maps images [N, C, H, W] to features [N, K] with a network in the ONNX format. It has no gradients.

    The content of the file is a buffer, so that the encoder can be saved, compared and recognised as others are.

    Parameters
    ----------
    content : uint8 Tensor
        The content of the .onnx file.
    where : str
        What errors call the network.
    """

    content: Tensor

    def __init__(self, content: Tensor, where: str = "the ONNX network"):
        super().__init__()
        self.register_buffer("content", content)
        self.where = where
        self.session = _session(content, where)
        inputs = self.session.get_inputs()
        if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].type not in (FLOAT, HALF):
            found = ", ".join(f"{each.name} {each.type} {each.shape}" for each in inputs)
            raise TwofoldError(f"{where} has the inputs {found}: an encoder has one, of floats [N, C, H, W]")
        self.input_name, self.is_half = inputs[0].name, inputs[0].type == HALF
        sides = [side if isinstance(side, int) else None for side in inputs[0].shape]
        # Networks that were made with TensorFlow have the channels last.
        self.has_channels_last = sides[1] not in (1, 3) and sides[3] in (1, 3)
        if self.has_channels_last:
            sides = [sides[0], sides[3], sides[1], sides[2]]
        self.batch_size, self.channels = sides[:2]
        self.image_size = sides[2] if sides[2] == sides[3] else None
        if sides[2] != sides[3] and None not in sides[2:]:
            raise TwofoldError(f"{where} has images of {sides[2]}x{sides[3]} pixels: only square ones are possible")
        self.output_name = self._output()

    def _output(self) -> str:
        outputs = self.session.get_outputs()
        names = [output.name for output in outputs if len(output.shape) == 2]
        if not names:
            found = ", ".join(f"{output.name} {output.shape}" for output in outputs)
            raise TwofoldError(f"{self.where} has the outputs {found}: an encoder has one of shape [N, K]")
        return OUTPUT if OUTPUT in names else names[0]

    def forward(self, images: Tensor) -> Tensor:
        if self.has_channels_last:
            images = images.permute(0, 2, 3, 1)
        array = images.detach().cpu().numpy().astype(np.float16 if self.is_half else np.float32, copy=False)
        size = self.batch_size or len(array)
        parts = [self._run(array[start : start + size]) for start in range(0, len(array), size)]
        return torch.from_numpy(np.concatenate(parts)).float().to(images.device)

    def _run(self, images: np.ndarray) -> np.ndarray:
        """Compute a batch; a network with a fixed batch size gets copies of the last image in addition."""
        missing = (self.batch_size or 0) - len(images)
        padded = np.concatenate([images, np.repeat(images[-1:], missing, axis=0)]) if missing > 0 else images
        try:
            found = self.session.run([self.output_name], {self.input_name: np.ascontiguousarray(padded)})[0]
        except Exception as error:  # onnxruntime's errors have no public base class
            reason = " ".join(str(error).split())[:300]
            raise TwofoldError(f"{self.where} cannot compute images {list(images.shape)}: {reason}") from None
        return found[: len(images)]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)(self.content.clone(), self.where)


def _session(content: Tensor, where: str) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise TwofoldError(
            f"{where} needs onnxruntime, which cannot be imported ({error}): {how_to_install('onnx')}"
        ) from None
    wanted = ("CUDAExecutionProvider", "CPUExecutionProvider")
    providers = [name for name in wanted if name in onnxruntime.get_available_providers()]
    try:
        return onnxruntime.InferenceSession(content.cpu().numpy().tobytes(), providers=providers)
    except Exception as error:  # onnxruntime's errors have no public base class
        reason = " ".join(str(error).split())[:300]
        raise TwofoldError(
            f"{where} cannot be read as an ONNX network: {reason}; if its weights are in a second file, save it as one"
        ) from None
