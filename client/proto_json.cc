// SPDX-License-Identifier: Apache-2.0
#include "client/proto_json.h"

#include <google/protobuf/util/json_util.h>

#include <string>

#include "nlohmann/json.hpp"

namespace foretoken::client {

nlohmann::ordered_json ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  // Printing fails only for Any, and our messages hold no Any.
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  return nlohmann::ordered_json::parse(status.ok() ? text : "null", /*cb=*/nullptr, /*allow_exceptions=*/false);
}

}  // namespace foretoken::client
