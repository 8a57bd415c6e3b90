// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/breaking_changes.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/testing/descriptor_walk.h"

namespace foretoken::testing {
namespace {

using google::protobuf::EnumValueDescriptorProto;
using google::protobuf::FieldDescriptorProto;
using google::protobuf::FileDescriptorSet;

// Everything a peer depends on, as (where, what): "field .foretoken.v1.TokenTree#3" -> "token_ids uint32 repeated".
std::map<std::string, std::string> Contract(const FileDescriptorSet& set) {
  std::map<std::string, std::string> contract;
  for (const Message& message : Messages(set)) {
    contract[absl::StrCat("message ", message.name)] = "";
    for (const FieldDescriptorProto& field : message.message.field()) {
      const std::string oneof = field.has_oneof_index() && !field.proto3_optional()
                                    ? message.message.oneof_decl(field.oneof_index()).name()
                                    : "";
      contract[absl::StrCat("field ", message.name, "#", field.number())] =
          absl::StrJoin({field.name(), FieldDescriptorProto::Type_Name(field.type()), field.type_name(),
                         FieldDescriptorProto::Label_Name(field.label()),
                         std::string(field.proto3_optional() ? "optional" : ""), oneof},
                        " ");
    }
  }
  for (const Enum& e : Enums(set)) {
    contract[absl::StrCat("enum ", e.name)] = "";
    for (const EnumValueDescriptorProto& value : e.enumeration.value()) {
      contract[absl::StrCat("enum value ", e.name, "#", value.number())] = value.name();
    }
  }
  for (const Method& m : Methods(set)) {
    contract[absl::StrCat("rpc ", m.name)] =
        absl::StrCat(m.method.client_streaming() ? "stream " : "", m.method.input_type(), " -> ",
                     m.method.server_streaming() ? "stream " : "", m.method.output_type());
  }
  return contract;
}

}  // namespace

std::vector<std::string> BreakingChanges(const FileDescriptorSet& published, const FileDescriptorSet& current) {
  const std::map<std::string, std::string> now = Contract(current);
  std::vector<std::string> findings;
  for (const auto& [where, what] : Contract(published)) {
    const auto found = now.find(where);
    if (found == now.end()) {
      findings.push_back(absl::StrCat(where, ": vanished; it was \"", what, "\""));
    } else if (found->second != what) {
      findings.push_back(absl::StrCat(where, ": was \"", what, "\", is \"", found->second, "\""));
    }
  }
  return findings;
}

}  // namespace foretoken::testing
