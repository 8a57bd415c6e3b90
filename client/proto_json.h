// SPDX-License-Identifier: Apache-2.0
// Protocol messages as JSON, with the field names of the proto files. Fields with default values are included. 64-bit
// integers are strings and bytes are base64, as in protobuf's JSON mapping.
#pragma once

#include <google/protobuf/message.h>

#include "nlohmann/json_fwd.hpp"

namespace foretoken::client {

nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

}  // namespace foretoken::client
