"""Models outside of a run: folders that hold all that is needed to predict, and ONNX files."""
