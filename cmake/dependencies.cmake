# Third-party libraries, all from Debian packages (`./dev` installs them).
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
set(REPRISE_FMT fmt::fmt)
if(REPRISE_STATIC)
  set(REPRISE_FMT fmt::fmt-header-only)  # Debian has no static one
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)    # of those that pkg-config names
  add_link_options(-static-libstdc++ -static-libgcc)
endif()
find_package(nlohmann_json REQUIRED)
find_package(Boost 1.81 REQUIRED)  # Asio and Beast, headers alone
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
# Its header alone; `chat` loads the library when it needs it (apps/chat/libedit.h).
pkg_check_modules(LIBEDIT REQUIRED libedit)
pkg_check_modules(RE2 REQUIRED IMPORTED_TARGET re2)
# Images (src/images).
pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng)
pkg_check_modules(JPEG REQUIRED IMPORTED_TARGET libjpeg)
pkg_check_modules(WEBP REQUIRED IMPORTED_TARGET libwebp)
if(REPRISE_STATIC)
  find_package(ZLIB REQUIRED)
  target_link_libraries(PkgConfig::PNG INTERFACE ZLIB::ZLIB)  # an archive does not name what it needs
endif()
# Their headers alone: src/hub opens both at run time.
find_package(CURL REQUIRED)
find_package(OpenSSL REQUIRED)
# Open MPI, for libreprise-mpi.so alone (src/ranks/mpi); without it there are no worlds of several hosts.
if(NOT CMAKE_CROSSCOMPILING AND NOT REPRISE_STATIC)
  pkg_check_modules(MPI QUIET IMPORTED_TARGET ompi)
endif()
if(REPRISE_TESTS)
  find_package(GTest REQUIRED)
  find_package(ZLIB REQUIRED)
endif()
