// SPDX-License-Identifier: Apache-2.0
// Whether protos stay compatible with what was published.
#pragma once

#include <google/protobuf/descriptor.pb.h>

#include <string>
#include <vector>

namespace foretoken::testing {

// What a client or server built from `published` would no longer understand: a file, message, field, enum, enum value,
// oneof membership, service or rpc that vanished or changed its name, number, type, cardinality or streaming.
std::vector<std::string> BreakingChanges(const google::protobuf::FileDescriptorSet& published,
                                         const google::protobuf::FileDescriptorSet& current);

}  // namespace foretoken::testing
