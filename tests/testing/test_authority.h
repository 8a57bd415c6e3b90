// SPDX-License-Identifier: Apache-2.0
// A certificate authority for tests. Its certificates lie in a folder behind a symbolic link, as Kubernetes mounts a
// secret, so that a test can replace them all at once.
//
//   TestAuthority authority;
//   MountedCertificate server(authority, {.names = {"DNS:localhost", "IP:127.0.0.1"}});
//   rpc::ServerCredentials({.certificate = server.certificate(), .key = server.key(), .ca = server.ca()});
//   server.Renew(authority, {...});
//   WaitUntil([&] { return ShownCertificate(address) == base::ReadFile(server.certificate()).value(); });
#pragma once

#include <openssl/x509.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/testing/temp_dir.h"

namespace foretoken::testing {

struct CertificateRequest {
  std::vector<std::string> names;  // as OpenSSL writes alternative names: "DNS:localhost", "IP:127.0.0.1", "URI:..."
  absl::Duration begins = -absl::Hours(1), ends = absl::Hours(1);  // from now
  bool is_weak = false;                                            // signed with SHA-1
};

class TestAuthority {
 public:
  TestAuthority();

  struct Pair {
    std::string certificate, key;  // PEM
  };
  Pair Issue(const CertificateRequest& request) const;
  const std::string& certificate() const { return certificate_; }

 private:
  using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
  using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
  static Key MakeKey();

  Key key_;
  Certificate authority_;
  std::string certificate_;
};

class MountedCertificate {
 public:
  MountedCertificate(const TestAuthority& authority, const CertificateRequest& request,
                     const std::vector<const TestAuthority*>& trusted = {}) {
    Renew(authority, request, trusted);
  }

  std::string certificate() const { return current() + "/tls.crt"; }
  std::string key() const { return current() + "/tls.key"; }
  std::string ca() const { return current() + "/ca.crt"; }
  // Switches the link to a folder with a new certificate of this authority. Peers' certificates may come from one of
  // `trusted`; empty: from this authority.
  void Renew(const TestAuthority& authority, const CertificateRequest& request,
             const std::vector<const TestAuthority*>& trusted = {});

 private:
  std::string current() const { return directory_.path() + "/current"; }

  const TempDir directory_;
  int num_renewals_ = 0;
};

// The certificate that a server on "127.0.0.1:port" shows to new connections, as PEM. Empty: the handshake fails.
std::string ShownCertificate(const std::string& address);

}  // namespace foretoken::testing
