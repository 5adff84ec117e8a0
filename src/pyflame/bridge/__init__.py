"""Bridges to what others have made, and back: `pyflame.bridge.torch`, `pyflame.bridge.onnx`, imported when first used."""
