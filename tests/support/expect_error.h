// An error must be of the right kind and say what its reader needs.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "base/status.h"

namespace sluice::test {

inline void expect_error(const Status& status, Code code, std::initializer_list<const char*> said) {
  EXPECT_EQ(code_name(status.code()), code_name(code)) << status.message();
  for (const char* part : said) EXPECT_THAT(status.message(), testing::HasSubstr(part));
}

}  // namespace sluice::test
