"""Bridges to what others have made, and back: `bridge.torch` and `bridge.onnx`, imported when first used."""
