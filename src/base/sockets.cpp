#include "base/sockets.h"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

namespace sluice {
namespace {

constexpr int kBacklog = 4096;
constexpr Nanos kRetry = milliseconds(20);

int poll_timeout(Deadline deadline) {
  const Nanos left = std::clamp<Nanos>(deadline.remaining(), 0, seconds(3600));
  return static_cast<int>((left + milliseconds(1) - 1) / milliseconds(1));
}

Status await(int fd, short events, Deadline deadline, std::string_view what) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, poll_timeout(deadline));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return errno_status(Code::unavailable, "poll");
    if (ready == 0 && deadline.expired()) {
      return {Code::deadline_exceeded, fmt::format("the time is up while {}", what)};
    }
  }
}

struct AddressDelete {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, AddressDelete>;

Result<Addresses> resolve(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) return invalid_argument(fmt::format("address '{}': {}", host, ::gai_strerror(error)));
  return Addresses(list);
}

UniqueFd make_socket(const addrinfo& address) {
  UniqueFd fd(::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol));
  const int on = 1;
  if (fd) ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

Result<sockaddr_un> unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return invalid_argument(fmt::format("'{}' is too long for a socket: {} bytes, at most {}", path,
                                        path.size(), sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// Connects, and again while nobody listens there yet.
template <class Attempt>
Result<UniqueFd> connect_until(const std::string& where, Deadline deadline, Attempt&& attempt) {
  while (true) {
    UniqueFd fd = attempt();
    if (fd) return fd;
    const int error = errno;
    const bool early = error == ECONNREFUSED || error == ENOENT || error == EAGAIN || error == EINTR ||
                       error == EHOSTUNREACH || error == ENETUNREACH || error == ETIMEDOUT;
    if (!early || deadline.expired()) {
      return Status(early ? Code::deadline_exceeded : Code::unavailable,
                    fmt::format("cannot connect to {}: {}", where, std::strerror(error)));
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(kRetry));
  }
}

Status transfer_all(int fd, char* bytes, size_t count, bool send, Deadline deadline) {
  while (count > 0) {
    const ssize_t done =
        send ? ::send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT) : ::recv(fd, bytes, count, MSG_DONTWAIT);
    if (done > 0) {
      bytes += done;
      count -= static_cast<size_t>(done);
      continue;
    }
    if (done == 0) return unavailable("the other side has closed the connection");
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      return errno_status(Code::unavailable,
                          send ? "sending to the other side" : "reading from the other side");
    }
    SLUICE_RETURN_IF_ERROR(
        await(fd, send ? POLLOUT : POLLIN, deadline, send ? "sending" : "waiting for a message"));
  }
  return {};
}

}  // namespace

Result<UniqueFd> listen_tcp(const std::string& host, uint16_t port) {
  SLUICE_ASSIGN_OR_RETURN(const Addresses addresses, resolve(host, port, AI_PASSIVE));
  UniqueFd fd = make_socket(*addresses);
  const int on = 1;
  if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (!fd || ::bind(fd.get(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    return errno_status(Code::unavailable, fmt::format("cannot listen on {} port {}", host, port));
  }
  return fd;
}

Result<uint16_t> port_of(const UniqueFd& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return errno_status(Code::unavailable, "the port of a socket");
  }
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);
}

Result<UniqueFd> connect_tcp(const std::string& host, uint16_t port, Deadline deadline) {
  SLUICE_ASSIGN_OR_RETURN(const Addresses addresses, resolve(host, port, 0));
  return connect_until(fmt::format("{} port {}", host, port), deadline, [&] {
    UniqueFd fd = make_socket(*addresses);
    if (fd && ::connect(fd.get(), addresses->ai_addr, addresses->ai_addrlen) == 0) return fd;
    return UniqueFd();
  });
}

Result<UniqueFd> listen_unix(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const sockaddr_un address, unix_address(path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    return errno_status(Code::unavailable, fmt::format("cannot listen on {}", path));
  }
  return fd;
}

Result<UniqueFd> connect_unix(const std::string& path, Deadline deadline) {
  SLUICE_ASSIGN_OR_RETURN(const sockaddr_un address, unix_address(path));
  return connect_until(path, deadline, [&] {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd && ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
      return fd;
    return UniqueFd();
  });
}

Result<UniqueFd> accept_connection(const UniqueFd& listener, Deadline deadline) {
  while (true) {
    SLUICE_RETURN_IF_ERROR(await(listener.get(), POLLIN, deadline, "waiting for a connection"));
    UniqueFd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (fd) {
      const int on = 1;  // refused by a Unix socket, which needs it not
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      return fd;
    }
    if (errno != EINTR && errno != ECONNABORTED && errno != EAGAIN) {
      return errno_status(Code::unavailable, "accepting a connection");
    }
  }
}

Status send_frame(int fd, std::string_view bytes, Deadline deadline) {
  if (bytes.size() > UINT32_MAX) return invalid_argument("a frame holds at most 4 GiB");
  const uint32_t size = htonl(static_cast<uint32_t>(bytes.size()));
  std::string frame(sizeof(size) + bytes.size(), '\0');
  std::memcpy(frame.data(), &size, sizeof(size));
  std::copy(bytes.begin(), bytes.end(), frame.begin() + sizeof(size));
  return transfer_all(fd, frame.data(), frame.size(), true, deadline);
}

Result<std::string> receive_frame(int fd, size_t most, Deadline deadline) {
  uint32_t size = 0;
  SLUICE_RETURN_IF_ERROR(transfer_all(fd, reinterpret_cast<char*>(&size), sizeof(size), false, deadline));
  size = ntohl(size);
  if (size > most)
    return data_loss(fmt::format("a message of {} bytes was announced; at most {}", size, most));
  std::string bytes(size, '\0');
  SLUICE_RETURN_IF_ERROR(transfer_all(fd, bytes.data(), bytes.size(), false, deadline));
  return bytes;
}

}  // namespace sluice
