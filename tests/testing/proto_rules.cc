// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/proto_rules.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/testing/descriptor_walk.h"
#include "tests/testing/name_style.h"

namespace foretoken::testing {
namespace {

using google::protobuf::DescriptorProto;
using google::protobuf::EnumDescriptorProto;
using google::protobuf::EnumValueDescriptorProto;
using google::protobuf::FieldDescriptorProto;
using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;
using google::protobuf::FileOptions;
using google::protobuf::MethodDescriptorProto;
using google::protobuf::ServiceDescriptorProto;

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

// --- rules of one kind of thing: a name, and what is right -----------------------------------------------------------

template <typename Thing>
using IsRight = std::function<bool(const Thing&)>;

ProtoRule FileRule(std::string rule, IsRight<FileDescriptorProto> is_right) {
  return {rule, [rule, is_right](const FileDescriptorSet& set) {
            Findings findings;
            for (const FileDescriptorProto* file : OurFiles(set)) {
              if (!is_right(*file)) findings.push_back(absl::StrCat(rule, ": ", file->name()));
            }
            return findings;
          }};
}

ProtoRule MessageRule(std::string rule, IsRight<Message> is_right) {
  return {rule, [rule, is_right](const FileDescriptorSet& set) {
            Findings findings;
            for (const Message& message : Messages(set)) {
              if (!is_right(message)) findings.push_back(absl::StrCat(rule, ": ", message.name));
            }
            return findings;
          }};
}

ProtoRule FieldRule(std::string rule, IsRight<FieldDescriptorProto> is_right) {
  return {rule, [rule, is_right](const FileDescriptorSet& set) {
            Findings findings;
            for (const Message& message : Messages(set)) {
              for (const FieldDescriptorProto& field : message.message.field()) {
                if (!is_right(field)) findings.push_back(absl::StrCat(rule, ": ", message.name, ".", field.name()));
              }
            }
            return findings;
          }};
}

ProtoRule EnumRule(std::string rule, IsRight<Enum> is_right) {
  return {rule, [rule, is_right](const FileDescriptorSet& set) {
            Findings findings;
            for (const Enum& enumeration : Enums(set)) {
              if (!is_right(enumeration)) findings.push_back(absl::StrCat(rule, ": ", enumeration.name));
            }
            return findings;
          }};
}

ProtoRule ServiceRule(std::string rule,
                      std::function<bool(const FileDescriptorProto&, const ServiceDescriptorProto&, int)> is_right) {
  return {rule, [rule, is_right](const FileDescriptorSet& set) {
            Findings findings;
            for (const FileDescriptorProto* file : OurFiles(set)) {
              for (int i = 0; i < file->service_size(); ++i) {
                if (!is_right(*file, file->service(i), i)) {
                  findings.push_back(absl::StrCat(rule, ": ", file->service(i).name()));
                }
              }
            }
            return findings;
          }};
}

ProtoRule MethodRule(std::string rule, IsRight<Method> is_right) {
  return {rule, [rule, is_right](const FileDescriptorSet& set) {
            Findings findings;
            for (const Method& method : Methods(set)) {
              if (!is_right(method)) findings.push_back(absl::StrCat(rule, ": ", method.name));
            }
            return findings;
          }};
}

bool AllValues(const EnumDescriptorProto& enumeration, const IsRight<EnumValueDescriptorProto>& is_right) {
  return std::all_of(enumeration.value().begin(), enumeration.value().end(), is_right);
}

// --- rules over several files ---------------------------------------------------------------------------------------

// Files that agree on `key` must agree on `value`.
ProtoRule AgreementRule(std::string rule, std::function<std::string(const FileDescriptorProto&)> key,
                        std::function<std::string(const FileDescriptorProto&)> value) {
  return {rule, [rule, key, value](const FileDescriptorSet& set) {
            Findings findings;
            std::map<std::string, std::string> first;
            for (const FileDescriptorProto* file : OurFiles(set)) {
              const auto [found, is_new] = first.try_emplace(key(*file), value(*file));
              if (!is_new && found->second != value(*file)) {
                findings.push_back(absl::StrCat(rule, ": ", file->name(), ": expected \"", found->second, "\", got \"",
                                                value(*file), "\""));
              }
            }
            return findings;
          }};
}

std::string PackageOf(const FileDescriptorProto& file) { return file.package(); }

// Whether `to` is reached from `from` along the imports of packages.
bool Reaches(const std::string& from, const std::string& to, const std::multimap<std::string, std::string>& imports,
             std::set<std::string>& seen) {
  const auto [begin, end] = imports.equal_range(from);
  return std::any_of(begin, end, [&](const auto& edge) {
    return edge.second == to || (seen.insert(edge.second).second && Reaches(edge.second, to, imports, seen));
  });
}

Findings CheckNoImportCycle(const FileDescriptorSet& set) {
  std::map<std::string, std::string> package_of;
  for (const FileDescriptorProto& file : set.file()) package_of[file.name()] = file.package();
  std::multimap<std::string, std::string> imports;
  for (const FileDescriptorProto& file : set.file()) {
    for (const std::string& dependency : file.dependency()) {
      if (package_of[dependency] != file.package()) imports.emplace(file.package(), package_of[dependency]);
    }
  }
  for (const auto& [package, unused] : imports) {
    std::set<std::string> seen;
    // One place is enough: every package of the cycle would say the same.
    if (Reaches(package, package, imports, seen)) return {absl::StrCat("PACKAGE_NO_IMPORT_CYCLE: ", package)};
  }
  return {};
}

void AddUsedTypes(const DescriptorProto& message, std::set<std::string>& used) {
  for (const FieldDescriptorProto& field : message.field()) used.insert(field.type_name());
  for (const DescriptorProto& nested : message.nested_type()) AddUsedTypes(nested, used);
}

void AddDefinedTypes(const DescriptorProto& message, const std::string& name, std::set<std::string>& defined) {
  defined.insert(name);
  for (const EnumDescriptorProto& nested : message.enum_type()) defined.insert(absl::StrCat(name, ".", nested.name()));
  for (const DescriptorProto& nested : message.nested_type()) {
    AddDefinedTypes(nested, absl::StrCat(name, ".", nested.name()), defined);
  }
}

Findings CheckImportsUsed(const FileDescriptorSet& set) {
  std::map<std::string, std::set<std::string>> defined;  // by file
  for (const FileDescriptorProto& file : set.file()) {
    const std::string prefix = absl::StrCat(".", file.package(), ".");
    for (const DescriptorProto& message : file.message_type()) {
      AddDefinedTypes(message, prefix + message.name(), defined[file.name()]);
    }
    for (const EnumDescriptorProto& value : file.enum_type()) defined[file.name()].insert(prefix + value.name());
  }
  Findings findings;
  for (const FileDescriptorProto* file : OurFiles(set)) {
    std::set<std::string> used;
    for (const DescriptorProto& message : file->message_type()) AddUsedTypes(message, used);
    for (const ServiceDescriptorProto& service : file->service()) {
      for (const MethodDescriptorProto& method : service.method())
        used.insert({method.input_type(), method.output_type()});
    }
    for (const std::string& dependency : file->dependency()) {
      const std::set<std::string>& types = defined[dependency];
      const bool is_used =
          std::any_of(types.begin(), types.end(), [&](const auto& type) { return used.count(type) > 0; });
      if (!is_used)
        findings.push_back(absl::StrCat("IMPORT_USED: ", file->name(), " imports ", dependency, " in vain"));
    }
  }
  return findings;
}

Findings CheckRequestsAndResponsesUnique(const FileDescriptorSet& set) {
  Findings findings;
  std::set<std::string> seen;
  for (const Method& method : Methods(set)) {
    for (const std::string& type : {method.method.input_type(), method.method.output_type()}) {
      if (!seen.insert(type).second) {
        findings.push_back(absl::StrCat("RPC_REQUEST_RESPONSE_UNIQUE: ", method.name, " shares ", type));
      }
    }
  }
  return findings;
}

// A request or response is explained by its rpc, and the rpc's comment is required.
ProtoRule MessageCommentRule() {
  return {"COMMENT_MESSAGE", [](const FileDescriptorSet& set) {
            std::set<std::string> explained;
            for (const Method& method : Methods(set)) {
              explained.insert({method.method.input_type(), method.method.output_type()});
            }
            Findings findings;
            for (const Message& message : Messages(set)) {
              if (explained.count(message.name) == 0 && !HasComment(message.file, message.path)) {
                findings.push_back(absl::StrCat("COMMENT_MESSAGE: ", message.name));
              }
            }
            return findings;
          }};
}

// --- the list
// ---------------------------------------------------------------------------------------------------------

void AddFileRules(std::vector<ProtoRule>& rules) {
  rules.push_back(AgreementRule(
      "DIRECTORY_SAME_PACKAGE", [](const auto& file) { return FolderOf(file.name()); }, PackageOf));
  rules.push_back(FileRule("PACKAGE_DEFINED", [](const auto& file) { return !file.package().empty(); }));
  rules.push_back(FileRule("PACKAGE_DIRECTORY_MATCH", [](const auto& file) {
    return FolderOf(file.name()) == absl::StrReplaceAll(file.package(), {{".", "/"}});
  }));
  rules.push_back({"PACKAGE_NO_IMPORT_CYCLE", CheckNoImportCycle});
  rules.push_back(
      AgreementRule("PACKAGE_SAME_DIRECTORY", PackageOf, [](const auto& file) { return FolderOf(file.name()); }));
  rules.push_back(FileRule("PACKAGE_LOWER_SNAKE_CASE", [](const auto& file) {
    const std::vector<std::string> parts = absl::StrSplit(file.package(), '.');
    return std::all_of(parts.begin(), parts.end(), [](const auto& part) { return IsLowerSnakeCase(part); });
  }));
  rules.push_back(FileRule("PACKAGE_VERSION_SUFFIX", [](const auto& file) {
    const std::vector<std::string> parts = absl::StrSplit(file.package(), '.');
    return parts.size() > 1 && IsVersion(parts.back());
  }));
  rules.push_back(FileRule("FILE_LOWER_SNAKE_CASE", [](const auto& file) {
    absl::string_view name = file.name();
    name.remove_prefix(name.rfind('/') + 1);
    return absl::ConsumeSuffix(&name, ".proto") && IsLowerSnakeCase(name);
  }));
  rules.push_back(FileRule("IMPORT_NO_PUBLIC", [](const auto& file) { return file.public_dependency_size() == 0; }));
  rules.push_back({"IMPORT_USED", CheckImportsUsed});
  // protoc leaves `syntax` empty for a file that does not say it, and for proto2, which we do not write.
  rules.push_back(FileRule("SYNTAX_SPECIFIED", [](const auto& file) { return !file.syntax().empty(); }));
  const std::pair<const char*, std::function<std::string(const FileOptions&)>> same_in_package[] = {
      {"PACKAGE_SAME_CSHARP_NAMESPACE", [](const auto& options) { return options.csharp_namespace(); }},
      {"PACKAGE_SAME_GO_PACKAGE", [](const auto& options) { return options.go_package(); }},
      {"PACKAGE_SAME_JAVA_MULTIPLE_FILES",
       [](const auto& options) { return options.java_multiple_files() ? std::string("true") : std::string("false"); }},
      {"PACKAGE_SAME_JAVA_PACKAGE", [](const auto& options) { return options.java_package(); }},
      {"PACKAGE_SAME_PHP_NAMESPACE", [](const auto& options) { return options.php_namespace(); }},
      {"PACKAGE_SAME_RUBY_PACKAGE", [](const auto& options) { return options.ruby_package(); }},
      {"PACKAGE_SAME_SWIFT_PREFIX", [](const auto& options) { return options.swift_prefix(); }}};
  for (const auto& [name, option] : same_in_package) {
    rules.push_back(
        AgreementRule(name, PackageOf, [option = option](const auto& file) { return option(file.options()); }));
  }
}

void AddMessageRules(std::vector<ProtoRule>& rules) {
  rules.push_back(
      MessageRule("MESSAGE_PASCAL_CASE", [](const auto& message) { return IsPascalCase(message.message.name()); }));
  rules.push_back(MessageRule("ONEOF_LOWER_SNAKE_CASE", [](const Message& message) {
    // A proto3 `optional` makes a oneof of its own, named with a leading underscore; it is nobody's writing.
    const auto is_synthetic = [&](int index) {
      return std::any_of(message.message.field().begin(), message.message.field().end(), [index](const auto& field) {
        return field.proto3_optional() && field.oneof_index() == index;
      });
    };
    for (int i = 0; i < message.message.oneof_decl_size(); ++i) {
      if (!is_synthetic(i) && !IsLowerSnakeCase(message.message.oneof_decl(i).name())) return false;
    }
    return true;
  }));
  rules.push_back(
      FieldRule("FIELD_LOWER_SNAKE_CASE", [](const auto& field) { return IsLowerSnakeCase(field.name()); }));
  rules.push_back(FieldRule("FIELD_NOT_REQUIRED",
                            [](const auto& field) { return field.label() != FieldDescriptorProto::LABEL_REQUIRED; }));
  rules.push_back(MessageCommentRule());
}

void AddEnumRules(std::vector<ProtoRule>& rules) {
  rules.push_back(EnumRule("ENUM_PASCAL_CASE", [](const Enum& e) { return IsPascalCase(e.enumeration.name()); }));
  rules.push_back(
      EnumRule("ENUM_NO_ALLOW_ALIAS", [](const Enum& e) { return !e.enumeration.options().allow_alias(); }));
  rules.push_back(EnumRule("ENUM_FIRST_VALUE_ZERO", [](const Enum& e) {
    return e.enumeration.value_size() > 0 && e.enumeration.value(0).number() == 0;
  }));
  rules.push_back(EnumRule("ENUM_ZERO_VALUE_SUFFIX", [](const Enum& e) {
    return AllValues(e.enumeration, [](const auto& value) {
      return value.number() != 0 || absl::EndsWith(value.name(), "_UNSPECIFIED");
    });
  }));
  rules.push_back(EnumRule("ENUM_VALUE_UPPER_SNAKE_CASE", [](const Enum& e) {
    return AllValues(e.enumeration, [](const auto& value) { return IsUpperSnakeCase(value.name()); });
  }));
  rules.push_back(EnumRule("ENUM_VALUE_PREFIX", [](const Enum& e) {
    const std::string prefix = ToUpperSnakeCase(e.enumeration.name()) + "_";
    return AllValues(e.enumeration, [&](const auto& value) { return absl::StartsWith(value.name(), prefix); });
  }));
  rules.push_back(EnumRule("COMMENT_ENUM", [](const Enum& e) { return HasComment(e.file, e.path); }));
}

void AddServiceRules(std::vector<ProtoRule>& rules) {
  rules.push_back(ServiceRule("SERVICE_PASCAL_CASE",
                              [](const auto&, const auto& service, int) { return IsPascalCase(service.name()); }));
  rules.push_back(ServiceRule("SERVICE_SUFFIX", [](const auto&, const auto& service, int) {
    return absl::EndsWith(service.name(), "Service");
  }));
  rules.push_back(ServiceRule("COMMENT_SERVICE", [](const auto& file, const auto&, int index) {
    return HasComment(file, {FileDescriptorProto::kServiceFieldNumber, index});
  }));
  rules.push_back(MethodRule("RPC_PASCAL_CASE", [](const Method& m) { return IsPascalCase(m.method.name()); }));
  rules.push_back({"RPC_REQUEST_RESPONSE_UNIQUE", CheckRequestsAndResponsesUnique});
  const auto has_standard_name = [](const Method& m, absl::string_view type, absl::string_view suffix) {
    type.remove_prefix(type.rfind('.') + 1);
    return type == absl::StrCat(m.method.name(), suffix) ||
           type == absl::StrCat(m.service.name(), m.method.name(), suffix);
  };
  rules.push_back(MethodRule("RPC_REQUEST_STANDARD_NAME", [has_standard_name](const Method& m) {
    return has_standard_name(m, m.method.input_type(), "Request");
  }));
  rules.push_back(MethodRule("RPC_RESPONSE_STANDARD_NAME", [has_standard_name](const Method& m) {
    return has_standard_name(m, m.method.output_type(), "Response");
  }));
  rules.push_back(MethodRule("COMMENT_RPC", [](const Method& m) { return HasComment(m.file, m.path); }));
}

}  // namespace

const std::vector<ProtoRule>& ProtoRules() {
  static const auto* const kRules = [] {
    auto* rules = new std::vector<ProtoRule>;
    AddFileRules(*rules);
    AddMessageRules(*rules);
    AddEnumRules(*rules);
    AddServiceRules(*rules);
    return rules;
  }();
  return *kRules;
}

void PrintTo(const ProtoRule& rule, std::ostream* out) { *out << rule.name; }

}  // namespace foretoken::testing
