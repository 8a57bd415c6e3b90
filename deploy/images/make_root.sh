#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the services and makes FOLDER/verifier and FOLDER/proposer, the root file systems of the images: the programs,
# the shared libraries that they load, the licences of these, and nothing else. There is no shell in them.
#
#   deploy/images/make_root.sh cpu|cuda FOLDER
#
# CUDA_PRESET=cuda-quick compiles the kernels for A100 alone, and PTX for later GPUs, instead of for all architectures.
# Runs in the build stage of the Dockerfile, or on any machine with the image's Debian.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
device=${1:?cpu or cuda}
mkdir -p "${2:?FOLDER}"
out=$(cd "$2" && pwd)
cd "$root"

# copy_libraries FILE ROOT: copies what FILE loads to the same places. glibc's loader looks there without a cache.
copy_libraries() {
  ldd "$1" | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\/lib/ { print $1 }' | while read -r library; do
    install -D "$(realpath "$library")" "$2$library"
  done
}

# make_root COMPONENT PROGRAM...
make_root() {
  local folder=$out/$1 program
  shift
  rm -rf "$folder"
  mkdir -p "$folder"/{etc/ssl/certs,tmp,usr/bin,usr/lib,usr/lib64,usr/share/doc/foretoken}
  ln -s usr/lib usr/lib64 "$folder"  # as Debian has them, so that the root fits over Debian's
  chmod 1777 "$folder/tmp"
  for program in "$@"; do
    strip -o "$folder/usr/bin/${program##*/}" "$program"
    copy_libraries "$program" "$folder"
  done
  cp /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs"  # for a collector of traces
  echo 'foretoken:x:65532:65532::/tmp:/nonexistent' >"$folder/etc/passwd"
  echo 'foretoken:x:65532:' >"$folder/etc/group"
  cp LICENSE "$folder/usr/share/doc/foretoken"
  if [[ $device == cuda ]]; then  # the driver's own libraries come from the node
    install -D .cuda/nvidia/nccl/lib/libnccl.so.2 "$folder/usr/lib/x86_64-linux-gnu/libnccl.so.2"
  fi
  deploy/images/make_sbom.py "$folder" "$@"
}

case $device in
  cpu)
    ./dev build foretoken_verifier foretoken_proposer foretoken
    bin=build/release/bin
    ;;
  cuda)
    ./dev setup --cuda
    preset=${CUDA_PRESET:-cuda}
    cmake --preset "$preset"
    cmake --build --preset "$preset" --target foretoken_verifier foretoken_proposer foretoken
    bin=build/$preset/bin
    ;;
  *)
    echo "make_root.sh: expected cpu or cuda, got $device" >&2
    exit 2
    ;;
esac
make_root verifier $bin/foretoken_verifier $bin/foretoken
make_root proposer $bin/foretoken_proposer
du -sh "$out"/*
