"""A trained policy taken away: a folder that others can download, load and play; and ONNX."""
