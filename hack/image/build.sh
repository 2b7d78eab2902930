#!/bin/sh
# What the image holds, made of this checkout: the Dockerfile runs this, and so does a test where no
# container engine is.
#
#   build.sh DESTINATION      an empty environment of $PYTHON (python3), with the wheel and what it
#                             needs at run time, at the versions in constraints.txt; no pip, no
#                             setuptools, nothing for development
#
# Run it in the checkout. The environment works at this DESTINATION only.
set -eu

destination=$1
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What builds the wheel is pinned as well; which of the two variables counts depends on pip's age.
PIP_CONSTRAINT=$PWD/constraints.txt
PIP_BUILD_CONSTRAINT=$PIP_CONSTRAINT
export PIP_CONSTRAINT PIP_BUILD_CONSTRAINT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1

# A copy, because setuptools builds in place: what an earlier build left there would be packed too.
mkdir "$work/source"
cp -R pyproject.toml README.md LICENSE kwok_operator "$work/source"
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$work" "$work/source"
"$python" -m venv --without-pip "$destination"
# Wheels alone: a source distribution would run its own code here, and need a compiler.
"$python" -m pip --python "$destination/bin/python" install --quiet --only-binary=:all: "$work"/*.whl
"$python" -m pip --python "$destination/bin/python" check
