// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/tls.h"

#include <arpa/inet.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <functional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace foretoken::rpc {
namespace {

namespace tls = grpc::experimental;

// The URI and DNS names of a certificate, whole: gRPC's own list ends each at its first NUL byte, and does not say
// which kind it is of.
std::set<std::string> NamesOf(const grpc::string_ref& pem) {
  std::set<std::string> names;
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())),
                                                      &BIO_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr),
                                                                &X509_free);
  if (certificate == nullptr) return names;
  const std::unique_ptr<GENERAL_NAMES, decltype(&GENERAL_NAMES_free)> all(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)),
      &GENERAL_NAMES_free);
  for (int i = 0; i < sk_GENERAL_NAME_num(all.get()); ++i) {
    int type = 0;
    const auto* const value =
        static_cast<const ASN1_STRING*>(GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(all.get(), i), &type));
    if (type != GEN_URI && type != GEN_DNS) continue;
    const std::string name(reinterpret_cast<const char*>(ASN1_STRING_get0_data(value)),
                           static_cast<size_t>(ASN1_STRING_length(value)));
    if (absl::StrContains(name, "://") == (type == GEN_URI)) names.insert(name);
  }
  return names;
}

// Accepts a peer by the names in its certificate. gRPC has checked the certificate itself before.
class IdentityVerifier : public tls::ExternalCertificateVerifier {
 public:
  explicit IdentityVerifier(const std::vector<std::string>& identities)
      : identities_(identities.begin(), identities.end()) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)> /*callback*/,
              grpc::Status* status) override {
    const std::set<std::string> names = NamesOf(request->peer_cert());
    const bool is_allowed =
        std::ranges::any_of(names, [this](const std::string& name) { return identities_.contains(name); });
    *status = is_allowed ? grpc::Status::OK
                         : grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "the peer's identity is not allowed");
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  const std::set<std::string> identities_;
};

constexpr unsigned kCopyRefreshSeconds = 1;

void Configure(const TlsFiles& files, const TlsCopies& copies, tls::TlsCredentialsOptions& options) {
  options.set_certificate_provider(std::make_shared<tls::FileWatcherCertificateProvider>(
      copies.identity, copies.identity, copies.ca, kCopyRefreshSeconds));
  if (!copies.identity.empty()) options.watch_identity_key_cert_pairs();
  if (!copies.ca.empty()) options.watch_root_certs();
  if (!files.identities.empty()) {
    options.set_certificate_verifier(tls::ExternalCertificateVerifier::Create<IdentityVerifier>(files.identities));
    options.set_check_call_host(false);  // the identity is the name
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(const TlsFiles& files) {
  if (!files.is_used()) return grpc::InsecureServerCredentials();
  if (files.certificate.empty()) return absl::InvalidArgumentError("TLS: a server needs a certificate and its key");
  FT_ASSIGN_OR_RETURN(const TlsCopies copies, WatchTlsFiles(files));
  tls::TlsServerCredentialsOptions options(nullptr);  // gRPC 1.51 frees it only with the credentials made of it
  Configure(files, copies, options);
  options.set_cert_request_type(files.ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                                 : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return tls::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentials(const TlsFiles& files, bool is_secure) {
  if (!files.is_used()) {
    return is_secure ? grpc::SslCredentials(grpc::SslCredentialsOptions()) : grpc::InsecureChannelCredentials();
  }
  FT_ASSIGN_OR_RETURN(const TlsCopies copies, WatchTlsFiles(files));
  tls::TlsChannelCredentialsOptions options;
  Configure(files, copies, options);
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
