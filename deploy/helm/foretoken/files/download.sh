# Downloads the files of SHA256SUMS from $URL into $FOLDER. A file that is there with the right sum is kept, so a volume
# that outlives the pod is filled once, also by several pods at the same time. A file appears only when it is whole.
# A try ends after $STALL_SECONDS with less than 1000 bytes a second; the next one begins $PAUSE_SECONDS later.
set -eu
part= child= status=
trap 'rm -f "$part"' EXIT
trap '[ -z "$child" ] || kill "$child"; exit 143' TERM

# Waits for the last command that was started in the background, and has its status. A shell that runs a command in the
# foreground would not hear TERM before its end.
finish() {
  child=$! status=0
  wait "$child" || status=$?
  child=
  return "$status"
}

# has_sum FILE: whether its sum is $sum.
has_sum() {
  echo "$sum  $1" | sha256sum -c - >/dev/null 2>&1 &
  finish
}

# fetch: $file into $part. Each try goes on where the last one ended. Five tries that bring no further byte are the end.
fetch() {
  most=0 failures=0
  until
    # Every user of the machine may read arguments, so the token comes by standard input. Of a pipe, $! is the last
    # program: TERM reaches curl.
    printf '%s\n' "${TOKEN:+Authorization: Bearer $TOKEN}" |
      curl --fail --silent --show-error --location --connect-timeout 30 \
        --speed-limit 1000 --speed-time "${STALL_SECONDS:-60}" --continue-at - \
        --header @- --output "$part" "$URL/$file" &
    finish
  do
    [ "$status" != 33 ] || rm -f "$part"  # the server can only send all of it
    size=0
    [ ! -f "$part" ] || size=$(wc -c <"$part")
    failures=$((failures + 1))
    [ "$size" -le "$most" ] || most=$size failures=0
    [ "$failures" -lt 5 ] || return 1
    sleep "${PAUSE_SECONDS:-2}" &
    finish
  done
}

mkdir -p "$FOLDER"
cd "$FOLDER"
find . -maxdepth 1 -name '.*.part' -mtime +0 -exec rm -f {} \; || true  # of pods that were killed a day ago, or before
while read -r sum file; do
  if [ -f "$file" ] && has_sum "$file"; then
    echo "$file: there already"
    continue
  fi
  part=".$(uname -n).$(echo "$file" | tr / _).part"
  mkdir -p "$(dirname "$file")"
  echo "$file: downloading"
  fetch
  if ! has_sum "$part"; then
    echo "$file: expected the SHA-256 sum $sum, got" >&2
    sha256sum "$part" >&2 &
    finish
    exit 1
  fi
  mv "$part" "$file"
done <"$(dirname "$0")/SHA256SUMS"
