#!/bin/sh
# The compiler driver of CUDA {front}; who asks for its version hears of the CUDA that it compiles for.
for word; do
  case $word in -V | --version) exec cat "${{0%/*}}/version.txt" ;; esac
done
exec "$0-{front}" "$@"
