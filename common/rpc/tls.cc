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
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error_text.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/base/steady_clock.h"
#include "common/telemetry/line_limit.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "spdlog/spdlog.h"

namespace foretoken::rpc {
namespace {

namespace tls = grpc::experimental;

using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

constexpr size_t kMaxNamesBytes = 256;  // of a certificate, in the log

Certificate ReadCertificate(const grpc::string_ref& pem) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())),
                                                      &BIO_free);
  return {PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), &X509_free};
}

// The URI and DNS names of a certificate, whole: gRPC's own list ends each at its first NUL byte, and does not say
// which kind it is of.
std::set<std::string> NamesOf(const X509& certificate) {
  std::set<std::string> names;
  const std::unique_ptr<GENERAL_NAMES, decltype(&GENERAL_NAMES_free)> all(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)),
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

// A name, or an address without brackets.
std::string HostOf(absl::string_view address) { return std::string(base::WithoutBrackets(base::HostOf(address))); }

// Whether the certificate is of this host, a name or an IP address. gRPC's own check ends a certificate's names at
// their first NUL byte.
bool IsOf(X509& certificate, const std::string& host) {
  constexpr int kIsNoAddress = -2;
  const int by_address = X509_check_ip_asc(&certificate, host.c_str(), 0);
  if (by_address != kIsNoAddress) return by_address == 1;
  return X509_check_host(&certificate, host.data(), host.size(), X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS, nullptr) == 1;
}

// Accepts a peer by the names in its certificate. gRPC has checked the certificate itself before.
class PeerVerifier : public tls::ExternalCertificateVerifier {
 public:
  // Without identities a server must have the name that was called.
  explicit PeerVerifier(const std::vector<std::string>& identities)
      : identities_(identities.begin(), identities.end()) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)> /*callback*/,
              grpc::Status* status) override {
    *status = Check(request->peer_cert(),
                    HostOf(absl::string_view(request->target_name().data(), request->target_name().size())));
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  grpc::Status Check(const grpc::string_ref& pem, const std::string& host) {
    const Certificate certificate = ReadCertificate(pem);
    if (certificate == nullptr) return {grpc::StatusCode::PERMISSION_DENIED, "the peer has no certificate"};
    const std::set<std::string> names = NamesOf(*certificate);
    const bool is_allowed =
        identities_.empty()
            ? IsOf(*certificate, host)
            : std::ranges::any_of(names, [this](const std::string& name) { return identities_.contains(name); });
    if (is_allowed) return grpc::Status::OK;
    std::string line = absl::StrCat(
        "TLS: a peer is refused, whose certificate is of ", base::Quoted(absl::StrJoin(names, ", "), kMaxNamesBytes),
        identities_.empty() ? absl::StrCat(", and not of ", base::Quoted(host)) : ", and of no allowed identity");
    const grpc::Status status(grpc::StatusCode::PERMISSION_DENIED, line);
    // gRPC does not say it at a server.
    if (auto passed = lines_.Pass("a refused peer", std::move(line), SteadyNow())) spdlog::warn("{}", *passed);
    return status;
  }

  const std::set<std::string> identities_;
  telemetry::LineLimits lines_;
};

constexpr unsigned kCopyRefreshSeconds = 1;

void Configure(const TlsFiles& files, const TlsCopies& copies, bool is_server, tls::TlsCredentialsOptions& options) {
  options.set_certificate_provider(std::make_shared<tls::FileWatcherCertificateProvider>(
      copies.identity, copies.identity, copies.ca, kCopyRefreshSeconds));
  if (!copies.identity.empty()) options.watch_identity_key_cert_pairs();
  if (!copies.ca.empty()) options.watch_root_certs();
  if (is_server && files.identities.empty()) return;  // every client that comes from the CA
  options.set_certificate_verifier(tls::ExternalCertificateVerifier::Create<PeerVerifier>(files.identities));
  if (!files.identities.empty()) options.set_check_call_host(false);  // the identity is the name
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(const TlsFiles& files) {
  if (!files.is_used()) return grpc::InsecureServerCredentials();
  if (files.certificate.empty()) return absl::InvalidArgumentError("TLS: a server needs a certificate and its key");
  FT_ASSIGN_OR_RETURN(const TlsCopies copies, WatchTlsFiles(files));
  tls::TlsServerCredentialsOptions options(nullptr);  // gRPC 1.51 frees it only with the credentials made of it
  Configure(files, copies, /*is_server=*/true, options);
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
  Configure(files, copies, /*is_server=*/false, options);
  return tls::TlsCredentials(options);
}

bool IsLoopback(absl::string_view address) {
  const std::string host = HostOf(address);
  in_addr ipv4 = {};
  const bool is_ipv4 = inet_pton(AF_INET, host.c_str(), &ipv4) == 1;
  return host == "localhost" || host == "::1" || (is_ipv4 && ntohl(ipv4.s_addr) >> 24 == 127);
}

}  // namespace foretoken::rpc
