"""Training on several ranks: aggregation, data partitions, split models, ZeRO, offloading."""
