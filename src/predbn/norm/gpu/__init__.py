"""What layers compute on a GPU, in as few kernels as possible: three per layer, four for `auto` and `auto_stream`.

    sums.py            Σx and Σx² of the batch, of each group or of each example: the one kernel that reads all values
    statistics.py      from these to the statistics of the batch: bounded influence, and what its classes explain
    mixture.py         for `auto`: from these to the statistics to normalise with
    stream_past.py     the same for `auto_stream`, with the past of each stream
    normalise.py       the normalised values
    rules.py           what the kernels have to know about a strategy
    layer.py           the kernels of a layer, one after the other
    mixed_moments.py   sums and statistics for compiled networks under `batch`, `prior` and `ema`
    operators.py       operators of torch.compile
    launch.py          launches with little work for the host, which can be recorded
    packed_launch.py   launches that were recorded, with other memory

In networks that `predbn.compile` fuses, a convolution gives the sums of its output, and a 1×1 convolution may normalise
its input:

    conv.py            our kernel for 1×1 convolutions, and the one that adds up what its tiles have found
    conv_cudnn.py      cuDNN's kernels for any convolution
    conv_choice.py     which way is the fastest for a shape, separate kernels included
    conv_operators.py  all of them as operators of torch.compile
    timing.py          how long a call takes on the GPU

Triton is imported only when a kernel is first run. Everything here is also written in plain operations elsewhere in
`predbn.norm`, which is what a CPU, gradients and exported graphs use, and what the tests compare with.
"""
