// SPDX-License-Identifier: Apache-2.0
#include "common/tracing/http_sender.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/tls.h"
#include "common/tracing/answer.h"
#include "common/tracing/gzip.h"
#include "common/tracing/otlp.h"
#include "google/rpc/status.pb.h"
#include "kernels/check.h"

namespace foretoken::tracing {
namespace {

using Outcome = SendResult::Outcome;

constexpr size_t kMaxRefusalBytes = size_t{64} << 10;  // that is read for a line of the log

// What the collector answered.
struct Answer {
  std::string body;
  std::string retry_after;
  size_t num_header_bytes = 0;  // with trailers, which curl does not bound
};

size_t TakeBody(char* data, size_t, size_t num_bytes, void* answer) {
  std::string& body = static_cast<Answer*>(answer)->body;
  if (body.size() + num_bytes > kMaxResponseBytes) return 0;  // ends the call
  body.append(data, num_bytes);
  return num_bytes;
}

size_t TakeHeader(char* data, size_t, size_t num_bytes, void* answer) {
  size_t& num_header_bytes = static_cast<Answer*>(answer)->num_header_bytes;
  num_header_bytes += num_bytes;
  if (num_header_bytes > kMaxResponseBytes) return 0;  // ends the call
  constexpr absl::string_view kName = "retry-after:";
  const absl::string_view line(data, num_bytes);
  if (absl::StartsWithIgnoreCase(line, kName)) {
    static_cast<Answer*>(answer)->retry_after = std::string(absl::StripAsciiWhitespace(line.substr(kName.size())));
  }
  return num_bytes;
}

// OTLP: the body of a refusal is a google.rpc.Status.
std::string RefusalOf(long status, const std::string& body) {
  google::rpc::Status refusal;
  if (body.size() > kMaxRefusalBytes || !refusal.ParseFromString(body) || refusal.message().empty()) {
    return absl::StrCat("HTTP ", status);
  }
  return absl::StrCat("HTTP ", status, ": ", refusal.message());
}

int EndsNow(void* must_end, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return (*static_cast<MustEnd*>(must_end))() ? 1 : 0;
}

// One connection that is used again, and the headers of every request.
class HttpSender {
 public:
  explicit HttpSender(Endpoint endpoint) : endpoint_(std::move(endpoint)), curl_(curl_easy_init()) {
    FT_CHECK(curl_ != nullptr);
    AddHeader("Content-Type", "application/x-protobuf");
    AddHeader("Expect", "");  // or curl waits for an answer before it sends a large body
    if (endpoint_.compresses) AddHeader("Content-Encoding", "gzip");
    for (const auto& [key, value] : endpoint_.headers) AddHeader(key, value);
    Set(CURLOPT_URL, endpoint_.url.c_str());
    Set(CURLOPT_HTTPHEADER, headers_);
    Set(CURLOPT_USERAGENT, UserAgent().c_str());
    Set(CURLOPT_NOSIGNAL, 1L);
    Set(CURLOPT_QUICK_EXIT, 1L);  // or a try waits beyond its timeout for a slow name server
    if (absl::StartsWith(endpoint_.url, "http://")) Set(CURLOPT_PROXY, "");  // a proxy would read the headers' secrets
    Set(CURLOPT_NOPROGRESS, 0L);  // curl then calls EndsNow about once per second
    Set(CURLOPT_XFERINFOFUNCTION, EndsNow);
    Set(CURLOPT_ERRORBUFFER, error_);
    Set(CURLOPT_WRITEFUNCTION, TakeBody);
    Set(CURLOPT_HEADERFUNCTION, TakeHeader);
    // curl reads the files again for each new connection.
    SetFile(CURLOPT_CAINFO, endpoint_.tls.ca);
    // Or Debian's curl also trusts the system's authorities, which lie in this folder.
    if (!endpoint_.tls.ca.empty()) Set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));
    SetFile(CURLOPT_SSLKEY, endpoint_.tls.key);
    SetFile(CURLOPT_SSLCERT, endpoint_.tls.certificate);
    Set(CURLOPT_CA_CACHE_TIMEOUT, 0L);
  }
  HttpSender(const HttpSender&) = delete;
  HttpSender& operator=(const HttpSender&) = delete;
  ~HttpSender() {
    curl_slist_free_all(headers_);
    curl_easy_cleanup(curl_);
  }

  SendResult Send(const otlp::ExportTraceServiceRequest& request, absl::Duration timeout, const MustEnd& must_end) {
    const std::string plain = request.SerializeAsString();
    const std::string body = endpoint_.compresses ? Gzip(plain) : plain;
    Answer answer;
    Set(CURLOPT_POSTFIELDS, body.data());
    Set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    Set(CURLOPT_TIMEOUT_MS, std::max<long>(1, static_cast<long>(absl::ToInt64Milliseconds(timeout))));
    Set(CURLOPT_XFERINFODATA, const_cast<MustEnd*>(&must_end));
    Set(CURLOPT_WRITEDATA, &answer);
    Set(CURLOPT_HEADERDATA, &answer);
    error_[0] = '\0';
    const CURLcode code = curl_easy_perform(curl_);
    if (code == CURLE_WRITE_ERROR) return TooLongAnswer();
    if (code == CURLE_ABORTED_BY_CALLBACK)
      return {.outcome = Outcome::kTryAgain, .message = "the process ended before"};
    if (code != CURLE_OK) {
      return {.outcome = Outcome::kTryAgain,
              .message = absl::StrCat("OTLP by HTTP: ", error_[0] != '\0' ? error_ : curl_easy_strerror(code))};
    }
    long status = 0;
    curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
    return ResultOf(status, answer);
  }

 private:
  static SendResult ResultOf(long status, const Answer& answer) {
    if (status == 429 || status == 502 || status == 503 || status == 504) {
      return {.outcome = Outcome::kTryAgain,
              .try_again_after = ParseRetryAfter(answer.retry_after, absl::Now()),
              .message = RefusalOf(status, answer.body)};
    }
    if (status < 200 || status >= 300) {
      return {.outcome = Outcome::kRefused, .message = RefusalOf(status, answer.body)};
    }
    return ReadAnswer(answer.body);
  }

  template <typename Value>
  void Set(CURLoption option, Value value) {
    FT_CHECK(curl_easy_setopt(curl_, option, value) == CURLE_OK);
  }
  void SetFile(CURLoption option, const std::string& path) {
    if (!path.empty()) Set(option, path.c_str());
  }
  void AddHeader(const std::string& key, const std::string& value) {
    headers_ = curl_slist_append(headers_, absl::StrCat(key, ":", value.empty() ? "" : " ", value).c_str());
  }

  const Endpoint endpoint_;
  CURL* const curl_;
  curl_slist* headers_ = nullptr;
  char error_[CURL_ERROR_SIZE] = {};  // curl's words, of the last try
};

}  // namespace

std::optional<absl::Duration> ParseRetryAfter(const std::string& value, absl::Time now) {
  int64_t seconds = 0;
  if (absl::SimpleAtoi(value, &seconds)) return absl::Seconds(std::max<int64_t>(0, seconds));
  absl::Time date;
  if (!absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", value, &date, nullptr)) return std::nullopt;
  return std::max(absl::ZeroDuration(), date - now);
}

absl::StatusOr<SendBatch> MakeHttpSender(const Endpoint& endpoint) {
  if (absl::StartsWith(endpoint.url, "https://")) FT_RETURN_IF_ERROR(rpc::CheckTls(endpoint.tls));
  const auto sender = std::make_shared<HttpSender>(endpoint);
  return [sender](const otlp::ExportTraceServiceRequest& request, absl::Duration timeout, const MustEnd& must_end) {
    return sender->Send(request, timeout, must_end);
  };
}

}  // namespace foretoken::tracing
