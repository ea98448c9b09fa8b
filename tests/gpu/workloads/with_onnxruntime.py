"""ONNX Runtime: a network of a few operators, run on the GPU if the package supports it."""

import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import common


def inference():
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        common.say("missing", why="this build of onnxruntime has no CUDA provider: "
                   + ", ".join(onnxruntime.get_available_providers()))
        sys.exit(0)
    rng = np.random.default_rng(9)
    weights = [("w", rng.standard_normal((32, 3, 3, 3), dtype=np.float32)),
               ("m", rng.standard_normal((32 * 62 * 62, 100), dtype=np.float32) / 300)]
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["r"]),
         helper.make_node("Flatten", ["r"], ["f"]), helper.make_node("MatMul", ["f", "m"], ["o"]),
         helper.make_node("Softmax", ["o"], ["y"])],
        "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 64, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 100])],
        [onnx.numpy_helper.from_array(a, n) for n, a in weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CUDAExecutionProvider"])
    out = [session.run(None, {"x": rng.standard_normal((1 + i % 8, 3, 64, 64), dtype=np.float32)})[0] for i in range(40)]
    common.result("out", *out)


if __name__ == "__main__":
    common.run({"inference": inference})
