"""The largest model whose training fits a limit of memory on every rank: searched by training it.

`rank` trains one size under the limit, which the system enforces; `search` finds the largest one
by bisection over the blocks.
"""
