# syntax=docker/dockerfile:1
# dualml with its frameworks. Rendered files (`dualml submit --on compose|kubernetes`) run this image.
#
#   CPU       docker build -t dualml:cpu .
#   CUDA      docker build -t dualml:cuda --build-arg EXTRA=torch --build-arg TORCH_INDEX= \
#                 --build-arg BASE=pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime .
#   Ascend    docker build -t dualml:ascend --build-arg EXTRA=mindspore --build-arg TORCH_INDEX= \
#                 --build-arg BASE=quay.io/ascend/cann:9.1.0-910b-ubuntu22.04-py3.11 .
#
# Any Debian or Ubuntu image with Python 3.11 or 3.12 will do for BASE. CANN has to fit MindSpore and
# the host's driver: see MindSpore's installation page. PYTHON makes the wheel; give both another
# image where Docker Hub cannot be reached.
ARG PYTHON=python:3.12-slim-bookworm
ARG BASE=python:3.12-slim-bookworm

FROM ${PYTHON} AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY dualml dualml
COPY dualml_torch dualml_torch
COPY dualml_ms dualml_ms
COPY experiments experiments
RUN python3 -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .

FROM ${BASE}
# torch, mindspore or all
ARG EXTRA=all
# Where PyTorch is taken from: its wheels for CPUs; empty where BASE has PyTorch, or for none.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# Of the user, and of what it writes into volumes.
ARG UID=10001

USER 0
# tc, for `--rate`; MindSpore's wheel needs libgomp. Their versions are the base's.
# hadolint ignore=DL3008
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --no-install-recommends -y iproute2 libgomp1 \
    && rm -rf /var/lib/apt/lists/*
# PyTorch first, from its own index alone: a wheel for CPUs satisfies what dualml asks for then.
# Some bases have a Python that pip is asked to leave alone; in an image nothing else uses it.
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    export PIP_NO_CACHE_DIR=1 PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore \
    && if [ -n "${TORCH_INDEX}" ] && [ "${EXTRA}" != mindspore ]; then \
        python3 -m pip install --index-url "${TORCH_INDEX}" 'torch>=2.4,<2.14' 'torchvision>=0.19,<0.29'; \
    fi \
    && python3 -m pip install "$(echo /wheel/dualml-*.whl)[${EXTRA}]"

# A volume that is mounted there for the first time belongs to whom the folder belongs to.
RUN useradd --create-home --uid "${UID}" dualml \
    && mkdir /runs /data \
    && chown dualml: /runs /data
ENV PYTHONUNBUFFERED=1 \
    DUALML_CACHE=/data \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER ${UID}
WORKDIR /home/dualml
# A run that begins, works and ends answers nobody: what is healthy, rendered files say for each node.
HEALTHCHECK NONE
# No ENTRYPOINT: CANN's image has one that sets its paths.
CMD ["dualml", "doctor"]
