#include "http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cctype>
#include <cstdlib>

#include "base/unique_fd.h"

namespace sluice::e2e {
namespace {

UniqueFd connect_to(int port, Nanos limit) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  timeval timeout{limit / seconds(1), (limit % seconds(1)) / 1000};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return {};
  return fd;
}

std::string dechunk(const std::string& raw) {
  std::string body;
  size_t at = 0;
  while (at < raw.size()) {
    const size_t line_end = raw.find("\r\n", at);
    if (line_end == std::string::npos) break;
    const size_t length = std::strtoull(raw.c_str() + at, nullptr, 16);
    if (length == 0) break;
    body.append(raw, line_end + 2, length);
    at = line_end + 2 + length + 2;
  }
  return body;
}

}  // namespace

Reply request(int port, const std::string& method, const std::string& path, const std::string& body,
              Nanos limit) {
  Reply reply;
  const UniqueFd fd = connect_to(port, limit);
  if (!fd) return reply;
  std::string text = method + " " + path + " HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n";
  if (!body.empty()) {
    text += "content-type: application/json\r\ncontent-length: " + std::to_string(body.size()) + "\r\n";
  }
  text += "\r\n" + body;
  size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t count = send(fd.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) break;  // a server may answer and close before it has read a body it refuses
    sent += static_cast<size_t>(count);
  }
  std::string raw;
  char buffer[16384];
  ssize_t count = 0;
  while ((count = recv(fd.get(), buffer, sizeof buffer, 0)) > 0)
    raw.append(buffer, static_cast<size_t>(count));

  const size_t head_end = raw.find("\r\n\r\n");
  if (head_end == std::string::npos || raw.rfind("HTTP/1.", 0) != 0) return reply;
  reply.status = std::atoi(raw.c_str() + 9);
  size_t at = raw.find("\r\n") + 2;
  while (at < head_end) {
    const size_t line_end = raw.find("\r\n", at);
    const size_t colon = raw.find(':', at);
    std::string name = raw.substr(at, colon - at);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const size_t value = raw.find_first_not_of(' ', colon + 1);
    reply.headers[name] = raw.substr(value, line_end - value);
    at = line_end + 2;
  }
  reply.body = raw.substr(head_end + 4);
  const auto coding = reply.headers.find("transfer-encoding");
  if (coding != reply.headers.end() && coding->second == "chunked") reply.body = dechunk(reply.body);
  return reply;
}

int free_port() {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return 0;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

}  // namespace sluice::e2e
