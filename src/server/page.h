// What a person sees who opens the server's address in a browser.
#pragma once

#include <string>

namespace sluice::server {

std::string front_page(const std::string& model);

}  // namespace sluice::server
