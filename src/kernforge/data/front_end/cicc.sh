#!/bin/sh
# The front end of CUDA {front} for the ptxas of CUDA {cuda}: its PTX says the version that this reads.
"$0-{front}" "$@" || exit
while [ $# -gt 1 ]; do
  if [ "$1" = -o ]; then exec sed -i '1,40s/^\.version {written}$/.version {read}/' "$2"; fi
  shift
done
