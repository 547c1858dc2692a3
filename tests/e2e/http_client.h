// A plain blocking HTTP/1.1 client for tests: one request a connection.
#pragma once

#include <map>
#include <string>

#include "base/clock.h"

namespace sluice::e2e {

struct Reply {
  int status = 0;                              // 0: no connection, or none of HTTP
  std::map<std::string, std::string> headers;  // lower-case names
  std::string body;                            // chunks put together
};

Reply request(int port, const std::string& method, const std::string& path, const std::string& body = "",
              Nanos limit = seconds(60));
inline Reply get(int port, const std::string& path, Nanos limit = seconds(10)) {
  return request(port, "GET", path, "", limit);
}
inline Reply post(int port, const std::string& path, const std::string& body, Nanos limit = seconds(60)) {
  return request(port, "POST", path, body, limit);
}

// A port of 127.0.0.1 that was free a moment ago.
int free_port();

}  // namespace sluice::e2e
