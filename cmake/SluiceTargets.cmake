# How every target of the project is compiled: one place for the language level, the warnings and the sanitizers.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

find_package(Threads REQUIRED)
find_program(SLUICE_CCACHE ccache)
if(SLUICE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SLUICE_CCACHE})
endif()

add_library(sluice_options INTERFACE)
target_include_directories(sluice_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(sluice_options INTERFACE -Wall -Wextra -Wconversion -Werror)
target_link_libraries(sluice_options INTERFACE Threads::Threads)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # The program runs on any x86-64-v2; faster instruction sets are chosen at run time (compute/cpu).
  target_compile_options(sluice_options INTERFACE -march=x86-64-v2)
endif()

if(SLUICE_SANITIZE STREQUAL "address")
  target_compile_options(sluice_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined
                                                  -fno-omit-frame-pointer)
  target_link_options(sluice_options INTERFACE -fsanitize=address,undefined)
elseif(SLUICE_SANITIZE STREQUAL "thread")
  # -Wno-error=tsan: g++ warns that TSan does not model std::atomic_thread_fence.
  target_compile_options(sluice_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer -Wno-error=tsan)
  target_link_options(sluice_options INTERFACE -fsanitize=thread)
  list(APPEND SLUICE_TEST_ENVIRONMENT
       "TSAN_OPTIONS=ignore_noninstrumented_modules=1:suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp")
elseif(NOT SLUICE_SANITIZE STREQUAL "")
  message(FATAL_ERROR "SLUICE_SANITIZE is '${SLUICE_SANITIZE}'; it takes 'address', 'thread' or nothing")
endif()

# sluice_library(NAME SOURCES file... [USES target...]): the static library of one folder of src/.
function(sluice_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;PRIVATE_USES" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC sluice_options ${ARG_USES} PRIVATE ${ARG_PRIVATE_USES})
endfunction()

# sluice_test(NAME SOURCES file... USES target... [LABELS label...] [TIMEOUT seconds]): one GoogleTest program.
# Without LABELS its cases belong to the fast suite ("fast").
function(sluice_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;USES;LABELS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS fast)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_USES} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE SLUICE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
                                          ENVIRONMENT "${SLUICE_TEST_ENVIRONMENT}")
endfunction()
