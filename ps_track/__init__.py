"""A run as an experiment tracker has it: Weights & Biases, Trackio or MLflow."""
