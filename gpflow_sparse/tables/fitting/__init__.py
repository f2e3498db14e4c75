"""From rows to a trained model: starts, choice of a method, training, calibration, scores."""
