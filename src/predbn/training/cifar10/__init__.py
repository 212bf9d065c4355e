"""ResNet-20 on CIFAR-10 with the paper's recipe, and the random search for the numbers of the recipe."""
