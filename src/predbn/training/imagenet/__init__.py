"""ResNet-50 on ImageNet with the paper's recipe, on one GPU or, with torchrun, on several.

The order of an epoch and the augmentation of every image depend only on the seed, so that an interrupted training can
be resumed in the middle of an epoch.
"""
