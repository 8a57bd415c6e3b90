// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/descriptor_walk.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace foretoken::testing {
namespace {

using google::protobuf::DescriptorProto;
using google::protobuf::EnumDescriptorProto;
using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;
using google::protobuf::ServiceDescriptorProto;

Path Extend(Path path, int field, int index) {
  path.push_back(field);
  path.push_back(index);
  return path;
}

void AddMessages(const Message& parent, std::vector<Message>& messages) {
  messages.push_back(parent);
  for (int i = 0; i < parent.message.nested_type_size(); ++i) {
    const DescriptorProto& nested = parent.message.nested_type(i);
    if (nested.options().map_entry()) continue;
    AddMessages({parent.file, nested, absl::StrCat(parent.name, ".", nested.name()),
                 Extend(parent.path, DescriptorProto::kNestedTypeFieldNumber, i)},
                messages);
  }
}

}  // namespace

std::vector<const FileDescriptorProto*> OurFiles(const FileDescriptorSet& set) {
  std::vector<const FileDescriptorProto*> files;
  for (const FileDescriptorProto& file : set.file()) {
    if (file.package() != "google.protobuf") files.push_back(&file);
  }
  return files;
}

std::vector<Message> Messages(const FileDescriptorSet& set) {
  std::vector<Message> messages;
  for (const FileDescriptorProto* file : OurFiles(set)) {
    for (int i = 0; i < file->message_type_size(); ++i) {
      AddMessages({*file,
                   file->message_type(i),
                   absl::StrCat(".", file->package(), ".", file->message_type(i).name()),
                   {FileDescriptorProto::kMessageTypeFieldNumber, i}},
                  messages);
    }
  }
  return messages;
}

std::vector<Enum> Enums(const FileDescriptorSet& set) {
  std::vector<Enum> enums;
  for (const FileDescriptorProto* file : OurFiles(set)) {
    for (int i = 0; i < file->enum_type_size(); ++i) {
      enums.push_back({*file,
                       file->enum_type(i),
                       absl::StrCat(".", file->package(), ".", file->enum_type(i).name()),
                       {FileDescriptorProto::kEnumTypeFieldNumber, i}});
    }
  }
  for (const Message& message : Messages(set)) {
    for (int i = 0; i < message.message.enum_type_size(); ++i) {
      const EnumDescriptorProto& enumeration = message.message.enum_type(i);
      enums.push_back({message.file, enumeration, absl::StrCat(message.name, ".", enumeration.name()),
                       Extend(message.path, DescriptorProto::kEnumTypeFieldNumber, i)});
    }
  }
  return enums;
}

std::vector<Method> Methods(const FileDescriptorSet& set) {
  std::vector<Method> methods;
  for (const FileDescriptorProto* file : OurFiles(set)) {
    for (int s = 0; s < file->service_size(); ++s) {
      const ServiceDescriptorProto& service = file->service(s);
      for (int m = 0; m < service.method_size(); ++m) {
        methods.push_back(
            {*file,
             service,
             service.method(m),
             absl::StrCat(".", file->package(), ".", service.name(), ".", service.method(m).name()),
             {FileDescriptorProto::kServiceFieldNumber, s, ServiceDescriptorProto::kMethodFieldNumber, m}});
      }
    }
  }
  return methods;
}

bool HasComment(const FileDescriptorProto& file, const Path& path) {
  return std::any_of(file.source_code_info().location().begin(), file.source_code_info().location().end(),
                     [&path](const auto& location) {
                       return std::equal(location.path().begin(), location.path().end(), path.begin(), path.end()) &&
                              !absl::StripAsciiWhitespace(location.leading_comments()).empty();
                     });
}

}  // namespace foretoken::testing
