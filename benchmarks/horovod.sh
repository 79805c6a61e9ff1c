#!/bin/bash
# Horovod 0.28.1 for PyTorch 2.13 (CPU), gloo alone, Python 3.11. Usage: horovod.sh DIR   (DIR is made; DIR/venv gets it)
# Needs cmake >= 3.13, g++, make (Debian: apt-get install cmake g++ make). JOBS: compile jobs, 2 unless set.
set -euo pipefail
dir=${1:?a folder that does not exist yet}
mkdir "$dir"; cd "$dir"
"${PYTHON:-python3}" -m venv venv
pip=$PWD/venv/bin/pip
# setuptools < 81 has pkg_resources; everything is installed here since Horovod's build imports torch (no build isolation)
$pip install -q 'torch==2.13.0' 'numpy<2' 'setuptools<81' wheel packaging cffi cloudpickle psutil pyyaml
$pip download -q --no-deps --no-build-isolation --no-binary :all: horovod==0.28.1
tar xzf horovod-0.28.1.tar.gz
cd horovod-0.28.1
# PyTorch's headers want C++17. CMakeLists.txt: Horovod and (a line that is prepended to it) its gloo
sed -i 's/CMAKE_CXX_STANDARD 1[14]/CMAKE_CXX_STANDARD 17/' CMakeLists.txt horovod/torch/CMakeLists.txt
export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1
export HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
export MAKEFLAGS=-j${JOBS:-2}
$pip install -v --no-build-isolation --no-deps .
cd ..
$pip check
venv/bin/python -c 'import horovod.torch as hvd; print("horovod: gloo built", hvd.gloo_built(), "mpi built", hvd.mpi_built())'
venv/bin/horovodrun --check-build
