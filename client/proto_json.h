// SPDX-License-Identifier: Apache-2.0
// Protocol messages as JSON, with the proto files' field names and with fields that hold their default. 64-bit integers
// are strings and bytes are base64, as protobuf's JSON mapping says.
#pragma once

#include <google/protobuf/message.h>

#include "nlohmann/json_fwd.hpp"

namespace foretoken::client {

nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

}  // namespace foretoken::client
