# Third-party libraries, all from Debian packages (`./dev` installs them).
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Boost 1.81 REQUIRED)  # Asio and Beast, headers alone
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(RE2 REQUIRED IMPORTED_TARGET re2)
# Their headers alone: src/hub opens both at run time.
find_package(CURL REQUIRED)
find_package(OpenSSL REQUIRED)
if(REPRISE_TESTS)
  find_package(GTest REQUIRED)
  find_package(ZLIB REQUIRED)
endif()
