#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The roots of the images, as a container runtime runs them: nothing of this machine below /, no right to write, the user
# of the image. If this test fails, an image lacks a library, is too large, or needs more rights than it is given.
#
#   tests/deploy/images.sh build/release
#
# Exits with 77 (skipped) without the right to make namespaces.
source "$(dirname "${BASH_SOURCE[0]}")/../testing/services.sh"
build=$(cd "$1" && pwd)
[[ $build == "$root/build/release" ]] || skip "images are made of the release build"
readonly MAX_MIB=64

((EUID == 0)) && unshare --mount true 2>/dev/null || skip "only root can change the root of a process"
"$root/deploy/images/make_root.sh" cpu "$scratch/image" >"$scratch/log" 2>&1 ||
  fail "$(<"$scratch/log")"

# in_image COMPONENT FOLDER PROGRAM...: FOLDER of this machine is /model there.
in_image() {
  local folder=$scratch/image/$1 model=$2
  shift 2
  mkdir -p "$folder/model"
  unshare --mount -- bash -c '
    folder=$1 model=$2
    shift 2
    mount --bind "$model" "$folder/model"
    mount --bind "$folder" "$folder"
    mount --bind "$model" "$folder/model"
    mount -o remount,bind,ro "$folder"
    exec chroot --userspec=65532:65532 "$folder" "$@"' - "$folder" "$model" "$@"
}

# fits_over_debian FOLDER: as COPY does, which takes no folder in the place of a link.
fits_over_debian() {
  local base=$scratch/debian
  rm -rf "$base"
  mkdir -p "$base/usr"/{bin,lib,lib64}
  ln -s usr/bin usr/lib usr/lib64 "$base"
  cp -a "$1/." "$base" 2>"$scratch/err" || fail "$1 does not fit over Debian: $(<"$scratch/err")"
  [[ -L $base/lib && -e $base/lib/x86_64-linux-gnu/libc.so.6 ]] || fail "$1 lacks the C library: $(ls "$base/lib")"
}

# The roots of CUDA images with the programs for CPUs and a toolkit of empty files, so without a compiler for GPUs.
make_cuda_roots() {
  local tree=$scratch/tree package
  mkdir -p "$tree"/{build/cuda,deploy,programs,.cuda/nvidia/nccl/lib}
  cp -r "$root/deploy/images" "$tree/deploy"
  cp "$root/LICENSE" "$tree"
  ln -s "$root/.sources" "$tree/.sources"
  ln -s "$build/bin" "$tree/build/cuda/bin"
  { printf '#!/usr/bin/env bash\nexit 0\n' && cat "$root/dev"; } >"$tree/dev"
  ln -s /bin/true "$tree/programs/cmake"
  chmod +x "$tree/dev"
  touch "$tree/.cuda/nvidia/nccl/lib/libnccl.so.2"
  for package in $(grep -o 'nvidia-[a-z0-9-]*==[0-9.]*' "$root/dev"); do
    package=${package//-/_}
    mkdir -p "$tree/.cuda/${package/==/-}.dist-info/licenses"
    echo "the licence of $package" >"$tree/.cuda/${package/==/-}.dist-info/licenses/License.txt"
  done
  PATH=$tree/programs:$PATH "$tree/deploy/images/make_root.sh" cuda "$scratch/cuda" >"$scratch/log" 2>&1 || fail "$(<"$scratch/log")"
}

make_cuda_roots
for component in verifier proposer; do
  folder=$scratch/cuda/$component
  fits_over_debian "$folder"
  [[ -e $folder/usr/lib/x86_64-linux-gnu/libnccl.so.2 ]] || fail "$component has no NCCL"
  grep -q '"nvidia-nccl-cu13"' "$folder/usr/share/doc/foretoken/sbom.spdx.json" || fail "$component: the SBOM lacks NCCL"
  [[ -s $folder/usr/share/doc/nvidia-nccl-cu13/copyright ]] || fail "$component has no licence of NCCL"
done

for component in verifier proposer; do
  folder=$scratch/image/$component
  fits_over_debian "$folder"
  ((MAX_MIB > $(du -sm "$folder" | cut -f1))) || fail "$component: expected less than $MAX_MIB MiB: $(du -sh "$folder")"
  [[ -z $(find "$folder" -name sh -o -name bash -o -perm /6000) ]] || fail "$component has a shell or a program with more rights"
  python3 - "$folder" <<'PY' || fail "$component: the SBOM lacks a library"
import json, pathlib, sys
root = pathlib.Path(sys.argv[1])
packages = {p["name"] for p in json.loads((root / "usr/share/doc/foretoken/sbom.spdx.json").read_text())["packages"]}
required = {"foretoken", "libgrpc++1.51", "libprotobuf32", "libssl3", "libc6", "nlohmann-json3-dev"}
if root.name == "verifier":
    required |= {"xgrammar", "llama_cpp_python"}
assert required <= packages, packages
assert not {name for name in packages if name == "libgtest-dev" or name.startswith("nvidia-")}, packages
for name in packages - {"foretoken"}:
    assert (root / "usr/share/doc" / name / "copyright").stat().st_size > 0, name
PY
done

start proposer in_image proposer "$root/deploy/demo/draft" /usr/bin/foretoken_proposer --listen=127.0.0.1:0 --method=draft \
  --model=/model
start verifier in_image verifier "$root/deploy/demo/target" /usr/bin/foretoken_verifier --listen=127.0.0.1:0 --model=/model \
  --proposer="draft=static:$address"
in_image verifier "$root/deploy/demo/target" /usr/bin/foretoken check --target="$address" >"$scratch/check" ||
  fail "$(<"$scratch/verifier.err")"
grep -q 'proposer draft: 1 connected' "$scratch/check" || fail "$(<"$scratch/check")"
in_image verifier "$root/deploy/demo/target" /usr/bin/foretoken_verifier --listen=127.0.0.1:0 --suffix=x 2>"$scratch/err" &&
  fail "an unknown flag was taken"
grep -q suffix "$scratch/err" || fail "an unknown flag is not named: $(<"$scratch/err")"
