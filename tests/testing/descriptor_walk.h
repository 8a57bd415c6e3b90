// SPDX-License-Identifier: Apache-2.0
// Everything that our protos define, nested or not, as flat lists. Files of google.protobuf are imports, not ours, and
// map entries are nobody's writing: both are passed over. The lists point into the set.
#pragma once

#include <google/protobuf/descriptor.pb.h>

#include <string>
#include <vector>

namespace foretoken::testing {

// Where a thing stands in its file, as SourceCodeInfo writes it.
using Path = std::vector<int>;

struct Message {
  const google::protobuf::FileDescriptorProto& file;
  const google::protobuf::DescriptorProto& message;
  std::string name;  // full, with a leading dot, as type_name writes it
  Path path;
};

struct Enum {
  const google::protobuf::FileDescriptorProto& file;
  const google::protobuf::EnumDescriptorProto& enumeration;
  std::string name;
  Path path;
};

struct Method {
  const google::protobuf::FileDescriptorProto& file;
  const google::protobuf::ServiceDescriptorProto& service;
  const google::protobuf::MethodDescriptorProto& method;
  std::string name;
  Path path;
};

std::vector<const google::protobuf::FileDescriptorProto*> OurFiles(const google::protobuf::FileDescriptorSet& set);
std::vector<Message> Messages(const google::protobuf::FileDescriptorSet& set);
std::vector<Enum> Enums(const google::protobuf::FileDescriptorSet& set);
std::vector<Method> Methods(const google::protobuf::FileDescriptorSet& set);

// Needs a set that protoc wrote with --include_source_info.
bool HasComment(const google::protobuf::FileDescriptorProto& file, const Path& path);

}  // namespace foretoken::testing
