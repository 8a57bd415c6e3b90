// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/tls.h"

#include <arpa/inet.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

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

// With a key of another certificate every handshake would fail.
absl::Status CheckPair(const TlsFiles& files) {
  std::string certificate_pem, key_pem;
  FT_ASSIGN_OR_RETURN(std::string newest_pem, base::ReadFile(files.certificate));
  while (newest_pem != certificate_pem) {  // until no renewal came between the reads
    certificate_pem = std::move(newest_pem);
    FT_ASSIGN_OR_RETURN(key_pem, base::ReadFile(files.key));
    FT_ASSIGN_OR_RETURN(newest_pem, base::ReadFile(files.certificate));
  }
  using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
  const Bio certificate_bio(BIO_new_mem_buf(certificate_pem.data(), static_cast<int>(certificate_pem.size())),
                            &BIO_free);
  const Bio key_bio(BIO_new_mem_buf(key_pem.data(), static_cast<int>(key_pem.size())), &BIO_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(
      PEM_read_bio_X509(certificate_bio.get(), nullptr, nullptr, nullptr), &X509_free);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_bio_PrivateKey(key_bio.get(), nullptr, nullptr, nullptr), &EVP_PKEY_free);
  if (certificate != nullptr && key != nullptr && X509_check_private_key(certificate.get(), key.get()) == 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("TLS: ", files.key, " is not the key of the certificate ", files.certificate));
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
  if (!files.certificate.empty()) FT_RETURN_IF_ERROR(CheckPair(files));
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
