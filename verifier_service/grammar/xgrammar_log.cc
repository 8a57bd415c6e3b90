// SPDX-License-Identifier: Apache-2.0
// XGrammar's log. XGrammar warns of what it passes over, and its warnings quote the text of clients, which belongs into
// no log. So they go nowhere. Its errors are exceptions, as without this file.
#include <string>

#include "support/logging.h"

namespace xgrammar {

void LogFatalImpl(const std::string& file, int lineno, const std::string& message) {
  throw LogFatalError(file, lineno, message);
}

void LogMessageImpl(const std::string&, int, int, const std::string&) {}

}  // namespace xgrammar
