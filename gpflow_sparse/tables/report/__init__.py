"""The page about a trained model."""
