// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/tls_files.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/mapped_file.h"
#include "common/base/status_macros.h"
#include "common/base/steady_clock.h"
#include "spdlog/spdlog.h"

namespace foretoken::rpc {
namespace {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

// New contents are used once two looks so far apart have seen the same, because somebody may still be writing them.
constexpr absl::Duration kSettles = absl::Seconds(1);

struct TlsContents {
  std::string identity, ca;

  friend bool operator==(const TlsContents&, const TlsContents&) = default;
};

Bio BioOf(const std::string& pem) { return {BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free}; }

Certificate NextCertificate(BIO* pem) { return {PEM_read_bio_X509(pem, nullptr, nullptr, nullptr), &X509_free}; }

// Of a file. Empty: there is none, or one is broken.
std::vector<Certificate> Certificates(const std::string& pem) {
  const absl::Cleanup clear = ERR_clear_error;
  const Bio bio = BioOf(pem);
  std::vector<Certificate> certificates;
  Certificate next = NextCertificate(bio.get());
  for (; next != nullptr; next = NextCertificate(bio.get())) certificates.push_back(std::move(next));
  if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE) certificates.clear();
  return certificates;
}

// Without a function OpenSSL would ask the terminal.
int NoPassphrase(char*, int, int, void*) { return -1; }
Key FirstKey(const std::string& pem) {
  const absl::Cleanup clear = ERR_clear_error;
  return {PEM_read_bio_PrivateKey(BioOf(pem).get(), nullptr, NoPassphrase, nullptr), &EVP_PKEY_free};
}

// Whether OpenSSL takes a file of certificates and a key behind them. It does not take keys and signatures that are no
// longer safe, in any certificate of the chain: gRPC would then end every handshake.
absl::Status CheckIdentity(const std::string& identity) {
  const std::vector<Certificate> chain = Certificates(identity);
  const Key key = FirstKey(identity);
  const absl::Cleanup clear = ERR_clear_error;
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_method()), &SSL_CTX_free);
  bool is_taken =
      context != nullptr && !chain.empty() && SSL_CTX_use_certificate(context.get(), chain.front().get()) == 1 &&
      SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1 && SSL_CTX_check_private_key(context.get()) == 1;
  for (size_t i = 1; i < chain.size(); ++i) {
    is_taken = is_taken && SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) == 1;
  }
  if (is_taken) return absl::OkStatus();
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  return absl::InvalidArgumentError(reason == nullptr ? "OpenSSL refuses it" : reason);
}

absl::StatusOr<std::string> Read(absl::string_view what, const std::string& path) {
  absl::StatusOr<std::string> contents = base::ReadFile(path);
  if (contents.ok()) return contents;
  return absl::InvalidArgumentError(absl::StrCat("TLS ", what, ": ", contents.status().message()));
}

// The certificate's file has further certificates of its chain.
absl::StatusOr<std::string> ReadIdentity(const TlsFiles& files) {
  std::string certificates, key;
  FT_ASSIGN_OR_RETURN(std::string newest, Read("certificate", files.certificate));
  while (newest != certificates) {  // until no renewal came between the reads
    certificates = std::move(newest);
    FT_ASSIGN_OR_RETURN(key, Read("key", files.key));
    FT_ASSIGN_OR_RETURN(newest, Read("certificate", files.certificate));
  }
  const std::vector<Certificate> chain = Certificates(certificates);
  if (chain.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("TLS certificate: ", files.certificate, " is no PEM file of one"));
  }
  const Key private_key = FirstKey(key);
  if (private_key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("TLS key: ", files.key, " is no PEM file of a key, or of one that needs a passphrase"));
  }
  if (X509_check_private_key(chain.front().get(), private_key.get()) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("TLS: ", files.key, " is not the key of the certificate ", files.certificate));
  }
  std::string identity = absl::StrCat(certificates, "\n", key);
  if (const absl::Status status = CheckIdentity(identity); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("TLS: ", files.certificate, " with ", files.key, " cannot be used: ", status.message()));
  }
  return identity;
}

absl::StatusOr<TlsContents> ReadContents(const TlsFiles& files) {
  TlsContents contents;
  if (!files.certificate.empty()) {
    FT_ASSIGN_OR_RETURN(contents.identity, ReadIdentity(files));
  }
  if (!files.ca.empty()) {
    FT_ASSIGN_OR_RETURN(contents.ca, Read("CA", files.ca));
    if (Certificates(contents.ca).empty()) {
      return absl::InvalidArgumentError(absl::StrCat("TLS CA: ", files.ca, " is no PEM file of certificates"));
    }
  }
  return contents;
}

// A file in memory, which a path of this process names. New contents replace the old ones in one step and have another
// time of change, in whole seconds: gRPC reads a file again if that time differs before and after it has read.
class MemoryFile {
 public:
  absl::Status Write(const std::string& contents) {
    const int next = memfd_create("tls", MFD_CLOEXEC);
    if (next < 0) return absl::InternalError(absl::StrCat("TLS: no memory for a copy of the files: errno ", errno));
    absl::Cleanup close_next = [&] { close(next); };
    const timespec change = {.tv_sec = ++num_changes_, .tv_nsec = 0};
    const timespec times[] = {change, change};
    if (write(next, contents.data(), contents.size()) != static_cast<ssize_t>(contents.size()) ||
        futimens(next, times) != 0) {
      return absl::InternalError(absl::StrCat("TLS: a copy of the files cannot be written: errno ", errno));
    }
    if (fd_ < 0) {
      fd_ = next;
      std::move(close_next).Cancel();
    } else if (dup3(next, fd_, O_CLOEXEC) < 0) {
      return absl::InternalError(absl::StrCat("TLS: a copy of the files cannot be replaced: errno ", errno));
    }
    return absl::OkStatus();
  }
  std::string path() const { return absl::StrCat("/proc/self/fd/", fd_); }

 private:
  int fd_ = -1;
  time_t num_changes_ = 0;
};

class WatchedTlsFiles {
 public:
  explicit WatchedTlsFiles(TlsFiles files) : files_(std::move(files)) {}

  absl::Status Begin() {
    FT_ASSIGN_OR_RETURN(const TlsContents contents, ReadContents(files_));
    FT_RETURN_IF_ERROR(Take(contents));
    // Where /proc cannot be read, gRPC would only log it, and every handshake would fail.
    for (const std::string& path : {copies().identity, copies().ca}) {
      if (!path.empty()) FT_RETURN_IF_ERROR(base::ReadFile(path).status());
    }
    return absl::OkStatus();
  }

  TlsCopies copies() const {
    return {.identity = contents_.identity.empty() ? "" : identity_.path(),
            .ca = contents_.ca.empty() ? "" : ca_.path()};
  }

  bool Has(const TlsFiles& files) const {
    return files.certificate == files_.certificate && files.key == files_.key && files.ca == files_.ca &&
           files.refresh == files_.refresh;
  }

  absl::Time next_look() const { return next_look_; }

  // If the files cannot be used now, the former copies stay, and the log says why.
  void Look() {
    next_look_ = SteadyNow() + files_.refresh;
    const absl::StatusOr<TlsContents> newest = ReadContents(files_);
    if (newest.ok()) {
      const bool is_settled = std::exchange(seen_, *newest) == *newest;
      if (*newest == contents_) {
        return trouble_.clear();
      }
      if (!is_settled) {
        next_look_ = SteadyNow() + kSettles;
        return;
      }
    }
    const absl::Status status = newest.ok() ? Take(*newest) : newest.status();
    if (status.ok()) {
      spdlog::info("new TLS files are in use: {}", files_.certificate.empty() ? files_.ca : files_.certificate);
      trouble_.clear();
    } else if (std::exchange(trouble_, std::string(status.message())) != status.message()) {
      spdlog::warn("the former TLS files stay in use: {}", trouble_);
    }
  }

 private:
  absl::Status Take(const TlsContents& contents) {
    if (contents.identity != contents_.identity) FT_RETURN_IF_ERROR(identity_.Write(contents.identity));
    if (contents.ca != contents_.ca) FT_RETURN_IF_ERROR(ca_.Write(contents.ca));
    contents_ = contents;
    return absl::OkStatus();
  }

  const TlsFiles files_;
  absl::Time next_look_ = SteadyNow() + files_.refresh;
  TlsContents contents_;  // that are in use
  TlsContents seen_;      // by the last look that saw right ones
  MemoryFile identity_, ca_;
  std::string trouble_;  // that the log has named
};

// One thread looks at all files of the process. gRPC does not tell when it stops reading a copy, so every copy is kept.
// A service has three sets of files at most: one for its clients, one for its proposers, one for the collector of
// traces.
class TlsWatch {
 public:
  static TlsWatch& Instance() {
    static TlsWatch watch;
    return watch;
  }
  // OpenSSL ends with the process, and the thread that uses it must end before.
  TlsWatch() { OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CRYPTO_STRINGS, nullptr); }
  ~TlsWatch() {
    {
      const std::lock_guard lock(mutex_);
      must_end_ = true;
      changed_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }

  absl::StatusOr<TlsCopies> Add(const TlsFiles& files) {
    const std::lock_guard lock(mutex_);
    for (const std::unique_ptr<WatchedTlsFiles>& watched : watched_) {
      if (!watched->Has(files)) continue;
      watched->Look();
      return watched->copies();
    }
    auto watched = std::make_unique<WatchedTlsFiles>(files);
    FT_RETURN_IF_ERROR(watched->Begin());
    TlsCopies copies = watched->copies();
    watched_.push_back(std::move(watched));
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
    changed_.notify_one();
    return copies;
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (!must_end_) {
      absl::Time next = absl::InfiniteFuture();
      for (const std::unique_ptr<WatchedTlsFiles>& files : watched_) {
        if (files->next_look() <= SteadyNow()) files->Look();
        next = std::min(next, files->next_look());
      }
      WaitAtMost(next - SteadyNow(), changed_, lock);
    }
  }

  std::mutex mutex_;  // a std::mutex, because the timed waits of absl::Mutex follow the system's clock
  std::condition_variable changed_;
  std::vector<std::unique_ptr<WatchedTlsFiles>> watched_;
  bool must_end_ = false;
  std::thread thread_;
};

absl::Status CheckOptions(const TlsFiles& files) {
  if (files.certificate.empty() != files.key.empty()) {
    return absl::InvalidArgumentError("TLS: a certificate needs its key, and a key its certificate");
  }
  if (!files.identities.empty() && files.ca.empty()) {
    return absl::InvalidArgumentError("TLS: identities mean nothing without the CA that vouches for them");
  }
  for (const std::string& identity : files.identities) {
    if (identity.empty() || absl::StripAsciiWhitespace(identity) != identity) {
      return absl::InvalidArgumentError(
          "TLS: expected identities without blanks around the commas, and without empty ones between or behind them");
    }
  }
  if (files.refresh < absl::Seconds(1)) {
    return absl::InvalidArgumentError("TLS refresh: expected at least 1s");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTls(const TlsFiles& files) {
  FT_RETURN_IF_ERROR(CheckOptions(files));
  return ReadContents(files).status();
}

absl::StatusOr<TlsCopies> WatchTlsFiles(const TlsFiles& files) {
  FT_RETURN_IF_ERROR(CheckOptions(files));
  return TlsWatch::Instance().Add(files);
}

}  // namespace foretoken::rpc
