"""A run as files for an engine of containers: Compose, or Kubernetes with Kubeflow or Volcano.

Nothing is started: the files are checked against one another and written. All of them run
`dualml.render.node` on every node, so what an engine has to know is how many there are, where the
first of them is and which is which.
"""
