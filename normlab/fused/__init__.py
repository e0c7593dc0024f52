"""The fused step: loss, gradient and optimiser of the common nets in one C++ file, compiled once on the user's CPU.

`build` makes and loads the library, `cover` says which nets it knows, `step` calls it, `watch` shows what passes
between the modules. In `cpp`, `net.cpp` is the whole net, `block.h` a block, and each other file one idea below that.
"""
