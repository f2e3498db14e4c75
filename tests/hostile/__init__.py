"""Tables of hostile input to the public methods of each family of models."""
