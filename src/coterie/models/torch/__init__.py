"""PyTorch modules and loaders."""
