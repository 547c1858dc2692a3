// A front: the HTTP server with the OpenAI API on top of a cluster's engines.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cluster/engine_client.h"

namespace sluice::server {

struct FrontOptions {
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string model_directory;
  std::string served_model_name;      // empty: the last component of model_directory, which is accepted too
  std::vector<std::string> api_keys;  // empty: anyone may use /v1
  int max_model_len = 0;              // 0: the model's
  size_t max_body_bytes = 8u << 20;
  int drain_timeout_seconds = 30;
};

// Serves until stop_fd becomes readable, lets requests in progress finish (at most drain_timeout_seconds)
// while new ones are refused, and returns the exit status: 0, or 1 when it could not start, which is logged.
int run_front(const FrontOptions& options, cluster::EngineClient& client, int stop_fd);

}  // namespace sluice::server
