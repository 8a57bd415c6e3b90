// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/test_authority.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/check.h"

namespace foretoken::testing {
namespace {

template <typename Write>
std::string Pem(const Write& write) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> out(BIO_new(BIO_s_mem()), &BIO_free);
  FT_CHECK(write(out.get()) == 1);
  char* text = nullptr;
  const long num_bytes = BIO_get_mem_data(out.get(), &text);
  return std::string(text, static_cast<size_t>(num_bytes));
}

std::string CertificatePem(X509* certificate) {
  return Pem([certificate](BIO* out) { return PEM_write_bio_X509(out, certificate); });
}

void AddExtension(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
  FT_CHECK(extension != nullptr);
  FT_CHECK(X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

// A name of its own, because OpenSSL finds a certificate's authority by its name.
std::string NextAuthorityName() {
  static int num_authorities = 0;
  return absl::StrCat("test authority ", ++num_authorities);
}

// A certificate without a signature.
X509* Draft(const std::string& name, EVP_PKEY* key, const CertificateRequest& request) {
  static long serial = 1;
  X509* const certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), absl::ToInt64Seconds(request.begins));
  X509_gmtime_adj(X509_getm_notAfter(certificate), absl::ToInt64Seconds(request.ends));
  X509_set_pubkey(certificate, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

}  // namespace

TestAuthority::Key TestAuthority::MakeKey() { return Key(EVP_EC_gen("P-256"), &EVP_PKEY_free); }

TestAuthority::TestAuthority()
    : key_(MakeKey()), authority_(Draft(NextAuthorityName(), key_.get(), {.ends = absl::Hours(24)}), &X509_free) {
  X509_set_issuer_name(authority_.get(), X509_get_subject_name(authority_.get()));
  AddExtension(authority_.get(), authority_.get(), NID_basic_constraints, "critical,CA:TRUE");
  FT_CHECK(X509_sign(authority_.get(), key_.get(), EVP_sha256()) > 0);
  certificate_ = CertificatePem(authority_.get());
}

TestAuthority::Pair TestAuthority::Issue(const CertificateRequest& request) const {
  const Key key = MakeKey();
  const Certificate certificate(Draft("a peer", key.get(), request), &X509_free);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(authority_.get()));
  if (!request.names.empty()) {
    AddExtension(certificate.get(), authority_.get(), NID_subject_alt_name, absl::StrJoin(request.names, ","));
  }
  FT_CHECK(X509_sign(certificate.get(), key_.get(), request.is_weak ? EVP_sha1() : EVP_sha256()) > 0);
  return {.certificate = CertificatePem(certificate.get()),
          .key = Pem([&key](BIO* out) {
            return PEM_write_bio_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

void MountedCertificate::Renew(const TestAuthority& authority, const CertificateRequest& request,
                               const std::vector<const TestAuthority*>& trusted) {
  const std::string folder = absl::StrCat(directory_.path(), "/", ++num_renewals_);
  std::filesystem::create_directory(folder);
  const TestAuthority::Pair pair = authority.Issue(request);
  std::ofstream(folder + "/tls.crt") << pair.certificate;
  std::ofstream(folder + "/tls.key") << pair.key;
  std::ofstream ca(folder + "/ca.crt");
  for (const TestAuthority* each : trusted) ca << each->certificate();
  if (trusted.empty()) ca << authority.certificate();
  ca.close();
  const std::string link = directory_.path() + "/next";
  std::filesystem::create_symlink(folder, link);
  FT_CHECK(std::rename(link.c_str(), current().c_str()) == 0);
}

std::string ShownCertificate(const std::string& address) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  SSL_CTX_set_quiet_shutdown(context.get(), 1);  // nothing is written to a connection that the server has closed
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> connection(BIO_new_ssl_connect(context.get()), &BIO_free_all);
  BIO_set_conn_hostname(connection.get(), address.c_str());
  if (BIO_do_handshake(connection.get()) != 1) return {};
  SSL* ssl = nullptr;
  BIO_get_ssl(connection.get(), &ssl);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(SSL_get1_peer_certificate(ssl), &X509_free);
  return certificate == nullptr ? std::string() : CertificatePem(certificate.get());
}

}  // namespace foretoken::testing
