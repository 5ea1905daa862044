"""Models outside this package: ONNX and OpenVINO files with the runtimes that read them, and the hub."""

from transencoder.export.checked import Agreement, export_model
from transencoder.export.hub import push
from transencoder.export.onnx import export_onnx
from transencoder.export.runtimes import ExportedEncoder, ExportedScorer, Runtime

__all__ = ["Agreement", "ExportedEncoder", "ExportedScorer", "Runtime", "export_model", "export_onnx", "push"]
