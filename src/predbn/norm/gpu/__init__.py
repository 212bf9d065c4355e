"""What layers compute on a GPU, in as few kernels as possible: three per layer, whatever the strategy is.

    sums.py        Σx and Σx² of the batch, of each group or of each example: the one kernel that reads all values
    statistics.py  from these to the statistics of the batch: bounded influence, and what its classes explain
    normalise.py   from these to the statistics of the strategy, and to the normalised values
    rules.py       what the last two have to know about a strategy
    layer.py       the three kernels, one after the other
    operators.py   the first two as operators of torch.compile

In networks that `predbn.compile` fuses, a 1×1 convolution gives the sums of its output and normalises its input:

    conv.py            the kernel, and the one that adds up what its tiles have found
    conv_choice.py     which way is the fastest for a shape, separate kernels included
    conv_operators.py  both as operators of torch.compile

Triton is imported only when a kernel is first run. Everything here is also written in plain operations elsewhere in
`predbn.norm`, which is what a CPU, gradients and exported graphs use, and what the tests compare with.
"""
