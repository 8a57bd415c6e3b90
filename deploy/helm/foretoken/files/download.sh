# Downloads the files of SHA256SUMS from $URL into $FOLDER. A file that is there with the right sum is kept, so a volume
# that outlives the pod is filled once, also by several pods at the same time. A file appears only when it is whole.
set -eu
part= curl=
trap 'rm -f "$part"' EXIT
trap '[ -z "$curl" ] || kill "$curl"; exit 143' TERM
mkdir -p "$FOLDER"
cd "$FOLDER"
while read -r sum file; do
  if [ -f "$file" ] && echo "$sum  $file" | sha256sum -c - >/dev/null 2>&1; then
    echo "$file: there already"
    continue
  fi
  part=".$(uname -n).$(echo "$file" | tr / _).part"
  mkdir -p "$(dirname "$file")"
  echo "$file: downloading"
  curl --fail --silent --show-error --location --retry 5 --retry-delay 2 --retry-all-errors \
    ${TOKEN:+--header "Authorization: Bearer $TOKEN"} --output "$part" "$URL/$file" &
  curl=$!
  wait "$curl"
  curl=
  if ! echo "$sum  $part" | sha256sum -c - >/dev/null 2>&1; then
    echo "$file: expected the SHA-256 sum $sum, got $(sha256sum <"$part")" >&2
    exit 1
  fi
  mv "$part" "$file"
done <"$(dirname "$0")/SHA256SUMS"
