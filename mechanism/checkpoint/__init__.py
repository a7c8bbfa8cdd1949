"""Fixtures from checkpoints: one layer of a quantised MoE checkpoint becomes the nine tensors of a fixture.

`shards` finds tensors, `settings` says how they were quantised, `names` which tensor is what, `autoawq` and
`compressed` turn them into the canonical layout (marlin-moe 1.1, 1.2), `hidden` and `routed` give the inputs,
`keep` stores. Nothing here needs torch but `prompt`, which runs the layers before.
"""
