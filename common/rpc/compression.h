// SPDX-License-Identifier: Apache-2.0
// Protects against small messages that become large when gRPC inflates them. gRPC checks its size limit only after it
// has inflated a message, so servers and channels refuse compressed messages. A call with such a message ends with
// UNIMPLEMENTED before anything is inflated.
//
//   for (const auto& [name, value] : kNoCompression) arguments.SetInt(name, value);
#pragma once

#include <utility>

#include "grpc/compression.h"
#include "grpc/grpc.h"

namespace foretoken::rpc {

// The first argument refuses calls that announce a compression. The second removes the filter that would inflate a
// message.
inline constexpr std::pair<const char*, int> kNoCompression[] = {
    {GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE},
    {GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0},
};

}  // namespace foretoken::rpc
