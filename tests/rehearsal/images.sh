#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# buildah builds deploy/images/Dockerfile whole, and the programs in the two images generate text together. If this fails,
# the Dockerfile does not build, or an image cannot do without a flag, a file or a right that it does not declare.
#
#   tests/rehearsal/images.sh [cpu|cuda]
#
# mmdebstrap makes the Debian below, so no registry of images is needed. Takes a quarter of an hour on two cores for cpu, a
# few minutes where this machine's ccache has the objects, and 12 GB of disk meanwhile. Those for CUDA have the kernels of one
# architecture. Without a GPU they generate text on the CPU, which shows that the images are whole, and nothing of the kernels.
# Exits with 77 (skipped) without buildah, mmdebstrap, Debian's packages or root.
source "$(dirname "${BASH_SOURCE[0]}")/../testing/services.sh"
readonly DEBIAN=bookworm
device=${1:-cpu}
storage=(--root "$scratch/storage" --runroot "$scratch/run" --storage-driver vfs)
ccache=${CCACHE_DIR:-$HOME/.cache/ccache}

command -v buildah >/dev/null && command -v mmdebstrap >/dev/null || skip "no buildah and mmdebstrap here"
((EUID == 0)) || skip "only root can build an image without an engine"

# with_buildah COMMAND [ARGUMENT...]
with_buildah() {
  buildah "${storage[@]}" "$@"
}

make_base() {
  mmdebstrap --variant=minbase --mode=root "$DEBIAN" "$scratch/base.tar" >"$scratch/base.log" 2>&1 ||
    skip "mmdebstrap cannot make Debian $DEBIAN here: $(tail -n 1 "$scratch/base.log")"
  mkdir "$scratch/base"
  printf 'FROM scratch\nADD base.tar /\n' >"$scratch/base/Dockerfile"
  mv "$scratch/base.tar" "$scratch/base"
  with_buildah bud --isolation chroot -t localhost/debian "$scratch/base" >"$scratch/base.log" 2>&1 ||
    fail "$(<"$scratch/base.log")"
}

# make_image COMPONENT: the second image takes the stages of the first one. Without --skip-unused-stages=false buildah waits for
# base-cpu forever, because it does not see that base-${DEVICE} is that stage.
make_image() {
  local authorities=/usr/local/share/ca-certificates  # of this machine's network, where a proxy looks into TLS
  mkdir -p "$ccache" "$authorities"
  with_buildah bud --isolation chroot --network host --layers --skip-unused-stages=false \
    --volume "$ccache:/root/.cache/ccache" --volume "$authorities:$authorities:ro" \
    --build-arg DEBIAN=localhost/debian --build-arg DEVICE="$device" --build-arg CUDA_PRESET=cuda-quick \
    --target "$1" -t "localhost/foretoken-$1" -f "$root/deploy/images/Dockerfile" "$root" \
    >"$scratch/$1.log" 2>&1 || fail "the image of the $1 does not build: $(tail -n 40 "$scratch/$1.log")"
}

# declared COMPONENT FIELD: what the image says of itself.
declared() {
  with_buildah inspect --type image --format "{{.OCIv1.Config.$2}}" "localhost/foretoken-$1"
}

# start_image COMPONENT MODEL FLAG...: as a container runtime starts it, with the declared program and user, a read-only
# model at /model and no rights. `root_of` has the image's root.
declare -A root_of
start_image() {
  local component=$1 model=$2 user program container
  shift 2
  user=$(declared "$component" User)
  program=$(declared "$component" Entrypoint | tr -d '[]')
  [[ $user == 65532:65532 ]] || fail "$component: expected the user 65532:65532, got $user"
  container=$(with_buildah from "localhost/foretoken-$component")
  root_of[$component]=$(with_buildah mount "$container")
  start "$component" buildah "${storage[@]}" run --isolation chroot --cap-drop ALL --volume "$model:/model:ro" "$container" -- \
    "$program" --model=/model --listen=127.0.0.1:0 "$@"
}

[[ $device == cpu || $device == cuda ]] || fail "expected cpu or cuda, got $device"
make_base
for component in verifier proposer; do
  make_image "$component"
done
demo=$root/deploy/demo
start_image proposer "$demo/draft" --method=draft
start_image verifier "$demo/target" --proposer="draft=static:$address"
"${root_of[verifier]}/usr/bin/foretoken" check --target="$address" >"$scratch/check" || fail "$(<"$scratch/verifier.err")"
grep -q 'proposer draft: 1 connected' "$scratch/check" || fail "$(<"$scratch/check")"
cat "$scratch/check"
du -sh "${root_of[@]}"
