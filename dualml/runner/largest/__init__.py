"""The largest model whose training fits a memory limit on every rank, found by training it.

`rank` trains one size under the limit, which the system enforces; `search` finds the largest size
by bisection over the number of blocks.
"""
