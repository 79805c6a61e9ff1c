"""Render a run as files for a container engine: Compose, or Kubernetes with Kubeflow or Volcano.

Nothing is started: the files are checked against one another and written. All of them run
`dualml.runner.render.node` on every node, so the engine only has to know the number of nodes, the
address of the first one, and the number of each.
"""
