"""Flat vectors: how a model's tensors are laid out, cut into shards, bound to modules and moved by optimisers.

* `layout` says where each tensor lies in the flat vectors and which shard owns which elements; it needs no torch.
* `vectors` allocates the flat vectors, or carves them out of a buffer such as shared memory.
* `flat` makes an `nn.Module`'s parameters, buffers and gradients views of flat vectors.
* `optimizers` holds the equations of the optimisers, out of place and independent of how a vector is cut.
* `norms` sums squares in an order that depends neither on shards nor on threads; `step_norm` bounds a step's length.
* `shares` lets several threads share long vectors.
* `gathering` averages what workers pushed; `shard` stages the next version of that and publishes it.

The rule of the package: training gives the same bits whatever the number of shards, blocks or threads.
"""
