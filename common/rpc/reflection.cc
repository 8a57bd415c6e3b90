// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/reflection.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/parse_message.h"
#include "common/rpc/status.h"
#include "google/protobuf/descriptor.pb.h"

namespace foretoken::rpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using reflection_api::ServerReflectionRequest;
using reflection_api::ServerReflectionResponse;

constexpr char kHealthService[] = "grpc.health.v1.Health";  // gRPC adds it to every server of ours

MessageBounds RequestBounds() {
  constexpr size_t kMaxNameBytes = size_t{1} << 10;
  return {*ServerReflectionRequest::descriptor(),
          {{.path = "host", .max_bytes = kMaxNameBytes},
           {.path = "file_by_filename", .max_bytes = kMaxNameBytes},
           {.path = "file_containing_symbol", .max_bytes = kMaxNameBytes},
           {.path = "file_containing_extension.containing_type", .max_bytes = kMaxNameBytes},
           {.path = "all_extension_numbers_of_type", .max_bytes = kMaxNameBytes},
           {.path = "list_services", .max_bytes = kMaxNameBytes}}};
}

void SetError(grpc::StatusCode code, const std::string& message, ServerReflectionResponse& response) {
  response.mutable_error_response()->set_error_code(code);
  response.mutable_error_response()->set_error_message(message);
}

void SetNotFound(ServerReflectionResponse& response) {
  SetError(grpc::StatusCode::NOT_FOUND, "the server knows nothing of this name", response);
}

// The file itself comes first. Null: there is no such file.
void SetFile(const FileDescriptor* file, ServerReflectionResponse& response) {
  if (file == nullptr) return SetNotFound(response);
  std::vector<const FileDescriptor*> files = {file};
  for (size_t i = 0; i < files.size(); ++i) {
    google::protobuf::FileDescriptorProto description;
    files[i]->CopyTo(&description);
    response.mutable_file_descriptor_response()->add_file_descriptor_proto(description.SerializeAsString());
    for (int d = 0; d < files[i]->dependency_count(); ++d) {
      const FileDescriptor* const imported = files[i]->dependency(d);
      if (std::ranges::find(files, imported) == files.end()) files.push_back(imported);
    }
  }
}

void SetFileOfExtension(const DescriptorPool& pool, const reflection_api::ExtensionRequest& wanted,
                        ServerReflectionResponse& response) {
  const Descriptor* const type = pool.FindMessageTypeByName(wanted.containing_type());
  const FieldDescriptor* const extension =
      type == nullptr ? nullptr : pool.FindExtensionByNumber(type, wanted.extension_number());
  SetFile(extension == nullptr ? nullptr : extension->file(), response);
}

void SetExtensionNumbers(const DescriptorPool& pool, const std::string& name, ServerReflectionResponse& response) {
  const Descriptor* const type = pool.FindMessageTypeByName(name);
  if (type == nullptr) return SetNotFound(response);
  std::vector<const FieldDescriptor*> extensions;
  pool.FindAllExtensions(type, &extensions);
  reflection_api::ExtensionNumberResponse& numbers = *response.mutable_all_extension_numbers_response();
  numbers.set_base_type_name(name);
  for (const FieldDescriptor* extension : extensions) numbers.add_extension_number(extension->number());
}

}  // namespace

// One stream. It reads, answers, writes, and reads again, so one callback at a time works on it.
class Reflection::Call final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Call(Reflection& reflection) : reflection_(reflection) {
    if (reflection_.num_calls_.fetch_add(1) < kMaxReflectionCalls) {
      StartRead(&request_);
    } else {
      Finish({grpc::StatusCode::RESOURCE_EXHAUSTED,
              absl::StrCat("reflection: expected at most ", kMaxReflectionCalls, " calls at a time, got one more")});
    }
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    const grpc::ByteBuffer bytes = TakeBytes(request_);
    ServerReflectionRequest request;
    if (const absl::Status status = ParseMessage(bytes, reflection_.bounds_, request); !status.ok()) {
      return Finish(ToGrpc(status));
    }
    response_ = ToBytes(reflection_.Answer(request));
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&request_);
  }
  void OnDone() override {
    reflection_.num_calls_.fetch_sub(1);
    delete this;
  }

  Reflection& reflection_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
};

Reflection::Reflection(std::vector<std::string> service_names, const DescriptorPool& pool)
    : pool_(pool), service_names_(std::move(service_names)), bounds_(RequestBounds()) {}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Reflection::ServerReflectionInfo(
    grpc::CallbackServerContext* /*context*/) {
  return new Call(*this);
}

ServerReflectionResponse Reflection::Answer(const ServerReflectionRequest& request) const {
  ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kListServices:
      for (const std::string& name : service_names_)
        response.mutable_list_services_response()->add_service()->set_name(name);
      for (const char* name : {kHealthService, reflection_api::ServerReflection::service_full_name()}) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      break;
    case ServerReflectionRequest::kFileByFilename:
      SetFile(pool_.FindFileByName(request.file_by_filename()), response);
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      SetFile(pool_.FindFileContainingSymbol(request.file_containing_symbol()), response);
      break;
    case ServerReflectionRequest::kFileContainingExtension:
      SetFileOfExtension(pool_, request.file_containing_extension(), response);
      break;
    case ServerReflectionRequest::kAllExtensionNumbersOfType:
      SetExtensionNumbers(pool_, request.all_extension_numbers_of_type(), response);
      break;
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      SetError(grpc::StatusCode::UNIMPLEMENTED, "the server does not know questions of this kind", response);
      break;
  }
  return response;
}

}  // namespace foretoken::rpc
