"""A run as an experiment tracker has it: Weights & Biases or MLflow."""
