"""predbn: prediction-time batch normalisation for any PyTorch model."""
