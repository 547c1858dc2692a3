// A client that sends and reads bytes as they are, so that tests can misbehave. Every wait ends after ten
// seconds.
#pragma once

#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace sluice::server {

class RawClient {
 public:
  // `receive_buffer` > 0: as small as the kernel allows near that.
  explicit RawClient(int port, int receive_buffer = 0);

  bool send(std::string_view bytes);
  // Until `marker` has come (it is included), or the end of the stream, or the time limit.
  std::string read_until(std::string_view marker);
  // One reply: its head and as many bytes as it says (or its chunks, put together).
  struct Reply {
    int status = 0;
    std::string head;
    std::string body;
    std::string_view header(std::string_view lower_case_name) const;
  };
  Reply read_reply(bool head_only = false);
  // The peer has closed (or reset) the connection.
  bool wait_closed();
  void shut_down_sending();
  void close() { socket_.reset(); }
  // Closes with a reset.
  void reset();

 private:
  bool fill();

  UniqueFd socket_;
  std::string input_;
};

// "POST path" with a JSON body and its length.
std::string post_request(std::string_view path, std::string_view body, std::string_view more_headers = "");
std::string get_request(std::string_view path, std::string_view more_headers = "");

}  // namespace sluice::server
