"""What is tried before a study trains: activations, stacks, configs, costs."""
