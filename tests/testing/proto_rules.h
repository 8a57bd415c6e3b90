// SPDX-License-Identifier: Apache-2.0
// The rules our protos keep, over the descriptors that protoc writes: buf's STANDARD category by its rule names
// (https://buf.build/docs/lint/rules) but PROTOVALIDATE, whose options we do not use, and comments on whatever a reader
// meets first.
//
// A rule returns what breaks it, one text per place, each beginning with the rule's name.
#pragma once

#include <google/protobuf/descriptor.pb.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace foretoken::testing {

using Findings = std::vector<std::string>;

struct ProtoRule {
  std::string name;
  std::function<Findings(const google::protobuf::FileDescriptorSet&)> check;
};

const std::vector<ProtoRule>& ProtoRules();

// How GoogleTest names a rule.
void PrintTo(const ProtoRule& rule, std::ostream* out);

}  // namespace foretoken::testing
