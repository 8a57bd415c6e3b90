// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/tls.h"

#include <arpa/inet.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace foretoken::rpc {
namespace {

namespace tls = grpc::experimental;

// Accepts a peer by the names in its certificate. gRPC has checked the certificate itself before.
class IdentityVerifier : public tls::ExternalCertificateVerifier {
 public:
  explicit IdentityVerifier(const std::vector<std::string>& identities)
      : identities_(identities.begin(), identities.end()) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)> /*callback*/,
              grpc::Status* status) override {
    const auto is_allowed = [this](const grpc::string_ref& name) {
      return identities_.contains(std::string(name.data(), name.size()));
    };
    *status =
        std::ranges::any_of(request->uri_names(), is_allowed) || std::ranges::any_of(request->dns_names(), is_allowed)
            ? grpc::Status::OK
            : grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "the peer's identity is not allowed");
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  const std::set<std::string> identities_;
};

// gRPC reads the files later and only logs when it cannot, so a mistake is found here.
absl::Status CheckReadable(absl::string_view what, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> contents = base::ReadFile(path);
  if (!contents.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("TLS ", what, ": ", contents.status().message()));
  }
  if (!absl::StrContains(*contents, "-----BEGIN ")) {
    return absl::InvalidArgumentError(absl::StrCat("TLS ", what, ": ", path, " is no PEM file"));
  }
  return absl::OkStatus();
}

void Configure(const TlsFiles& files, tls::TlsCredentialsOptions& options) {
  options.set_certificate_provider(std::make_shared<tls::FileWatcherCertificateProvider>(
      files.key, files.certificate, files.ca, static_cast<unsigned>(absl::ToInt64Seconds(files.refresh))));
  if (!files.certificate.empty()) options.watch_identity_key_cert_pairs();
  if (!files.ca.empty()) options.watch_root_certs();
  if (!files.identities.empty()) {
    options.set_certificate_verifier(tls::ExternalCertificateVerifier::Create<IdentityVerifier>(files.identities));
    options.set_check_call_host(false);  // the identity is the name
  }
}

}  // namespace

absl::Status CheckTls(const TlsFiles& files) {
  if (files.certificate.empty() != files.key.empty()) {
    return absl::InvalidArgumentError("TLS: a certificate needs its key, and a key its certificate");
  }
  if (!files.identities.empty() && files.ca.empty()) {
    return absl::InvalidArgumentError("TLS: identities mean nothing without the CA that vouches for them");
  }
  if (files.refresh < absl::Seconds(1)) {
    return absl::InvalidArgumentError("TLS refresh: expected at least 1s");
  }
  FT_RETURN_IF_ERROR(CheckReadable("certificate", files.certificate));
  FT_RETURN_IF_ERROR(CheckReadable("key", files.key));
  return CheckReadable("CA", files.ca);
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(const TlsFiles& files) {
  if (!files.is_used()) return grpc::InsecureServerCredentials();
  FT_RETURN_IF_ERROR(CheckTls(files));
  if (files.certificate.empty()) return absl::InvalidArgumentError("TLS: a server needs a certificate and its key");
  tls::TlsServerCredentialsOptions options(nullptr);
  Configure(files, options);
  options.set_cert_request_type(files.ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                                 : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return tls::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentials(const TlsFiles& files, bool is_secure) {
  if (!files.is_used()) {
    return is_secure ? grpc::SslCredentials(grpc::SslCredentialsOptions()) : grpc::InsecureChannelCredentials();
  }
  FT_RETURN_IF_ERROR(CheckTls(files));
  tls::TlsChannelCredentialsOptions options;
  Configure(files, options);
  return tls::TlsCredentials(options);
}

bool IsLoopback(absl::string_view address) {
  absl::string_view host = address.substr(0, address.rfind(':'));
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  in_addr ipv4 = {};
  const bool is_ipv4 = inet_pton(AF_INET, std::string(host).c_str(), &ipv4) == 1;
  return host == "localhost" || host == "::1" || (is_ipv4 && ntohl(ipv4.s_addr) >> 24 == 127);
}

}  // namespace foretoken::rpc
