// SPDX-License-Identifier: Apache-2.0
#include "common/tracing/gzip.h"

#include <zlib.h>

#include "absl/strings/match.h"
#include "kernels/check.h"

namespace foretoken::tracing {
namespace {

constexpr int kGzipWindowBits = 15 + 16;  // zlib's way to ask for gzip

void SetInput(absl::string_view bytes, z_stream& stream) {
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
}

void SetOutput(std::string& bytes, z_stream& stream) {
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
}

}  // namespace

std::string Gzip(absl::string_view plain) {
  z_stream stream{};
  FT_CHECK(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindowBits, /*memLevel=*/8,
                        Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, plain.size()), '\0');
  SetInput(plain, stream);
  SetOutput(packed, stream);
  FT_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

bool IsGzip(absl::string_view bytes) { return absl::StartsWith(bytes, "\x1f\x8b"); }

std::optional<std::string> Gunzip(absl::string_view packed, size_t max_bytes) {
  z_stream stream{};
  FT_CHECK(inflateInit2(&stream, kGzipWindowBits) == Z_OK);
  std::string plain(max_bytes, '\0');
  SetInput(packed, stream);
  SetOutput(plain, stream);
  const bool is_whole = inflate(&stream, Z_FINISH) == Z_STREAM_END;
  const bool is_full = stream.avail_out == 0;
  plain.resize(stream.total_out);
  inflateEnd(&stream);
  if (!is_whole && !is_full) return std::nullopt;
  return plain;
}

}  // namespace foretoken::tracing
