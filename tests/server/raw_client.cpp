#include "raw_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

namespace sluice::server {
namespace {
constexpr int kLimitMilliseconds = 10'000;
}

RawClient::RawClient(int port, int receive_buffer)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer > 0) {
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) socket_.reset();
}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool RawClient::fill() {
  pollfd entry{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&entry, 1, kLimitMilliseconds) <= 0) return false;
  char buffer[65536];
  const ssize_t bytes = ::recv(socket_.get(), buffer, sizeof buffer, 0);
  if (bytes <= 0) return false;
  input_.append(buffer, static_cast<size_t>(bytes));
  return true;
}

std::string RawClient::read_until(std::string_view marker) {
  size_t at;
  while ((at = input_.find(marker)) == std::string::npos) {
    if (!fill()) return std::exchange(input_, {});
  }
  std::string result = input_.substr(0, at + marker.size());
  input_.erase(0, at + marker.size());
  return result;
}

std::string_view RawClient::Reply::header(std::string_view name) const {
  std::string_view rest = head;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find("\r\n"));
    rest.remove_prefix(std::min(rest.size(), line.size() + 2));
    const size_t colon = line.find(": ");
    if (colon != name.size()) continue;
    const bool same = std::equal(name.begin(), name.end(), line.begin(), [](char a, char b) {
      return a == std::tolower(static_cast<unsigned char>(b));
    });
    if (same) return line.substr(colon + 2);
  }
  return {};
}

RawClient::Reply RawClient::read_reply(bool head_only) {
  Reply reply;
  reply.head = read_until("\r\n\r\n");
  if (reply.head.size() < 12 || !reply.head.ends_with("\r\n\r\n")) return reply;
  reply.status = std::atoi(reply.head.c_str() + 9);
  if (head_only || reply.status == 100) return reply;
  if (const std::string_view length = reply.header("content-length"); !length.empty()) {
    const auto bytes = static_cast<size_t>(std::atoll(length.data()));
    while (input_.size() < bytes && fill()) {
    }
    reply.body = input_.substr(0, bytes);
    input_.erase(0, bytes);
  } else if (reply.header("transfer-encoding") == "chunked") {
    while (true) {
      const std::string size = read_until("\r\n");
      const auto bytes = static_cast<size_t>(std::strtoull(size.c_str(), nullptr, 16));
      while (input_.size() < bytes + 2 && fill()) {
      }
      reply.body += input_.substr(0, bytes);
      input_.erase(0, bytes + 2);
      if (bytes == 0) break;
    }
  } else {
    while (fill()) {
    }
    reply.body = std::exchange(input_, {});
  }
  return reply;
}

bool RawClient::wait_closed() {
  pollfd entry{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  char buffer[65536];
  while (::poll(&entry, 1, kLimitMilliseconds) > 0) {
    if (::recv(socket_.get(), buffer, sizeof buffer, 0) <= 0) return true;
  }
  return false;
}

void RawClient::shut_down_sending() { ::shutdown(socket_.get(), SHUT_WR); }

void RawClient::reset() {
  const linger option{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &option, sizeof option);
  socket_.reset();
}

std::string post_request(std::string_view path, std::string_view body, std::string_view more_headers) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}",
      path, more_headers, body.size(), body);
}

std::string get_request(std::string_view path, std::string_view more_headers) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: test\r\n{}\r\n", path, more_headers);
}

}  // namespace sluice::server
