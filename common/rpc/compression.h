// SPDX-License-Identifier: Apache-2.0
// Why no peer can send us a small message that becomes a large one: a limit on a message's size is checked after it is
// inflated, so servers and channels refuse compressed messages. A call that sends one ends with UNIMPLEMENTED before
// anything is inflated.
//
//   for (const auto& [name, value] : kNoCompression) arguments.SetInt(name, value);
#pragma once

#include <utility>

#include "grpc/compression.h"
#include "grpc/grpc.h"

namespace foretoken::rpc {

// The first refuses calls that announce a compression. The second takes the filter away that would inflate a message.
inline constexpr std::pair<const char*, int> kNoCompression[] = {
    {GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE},
    {GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0},
};

}  // namespace foretoken::rpc
