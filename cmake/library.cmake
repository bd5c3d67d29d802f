# libreprise.so: the C interface of include/reprise.h, and nothing else that a program could see; include/reprise.hpp is
# the same for C++17. Its version is that of the interface; 0 until the first release, which promises to keep it.
# find_package(Reprise) and pkg-config find what `cmake --install build/release --component lib` and `--component dev`
# put somewhere.
if(REPRISE_STATIC)
  return()  # RE2's archive on Debian is not for shared objects
endif()
file(STRINGS include/reprise.h abi REGEX "^#define REPRISE_ABI [0-9]+u")
string(REGEX MATCH "[0-9]+" REPRISE_ABI "${abi}")
set(REPRISE_SOVERSION 0)
set(version_script ${CMAKE_SOURCE_DIR}/src/capi/libreprise.map)

add_library(reprise_library SHARED $<TARGET_OBJECTS:capi>)
target_link_libraries(reprise_library PRIVATE api server)
target_link_options(reprise_library PRIVATE LINKER:--version-script=${version_script})
if(NOT REPRISE_SANITIZE)
  target_link_options(reprise_library PRIVATE LINKER:-z,defs LINKER:--gc-sections)
endif()
set_target_properties(reprise_library PROPERTIES
  OUTPUT_NAME reprise LINKER_LANGUAGE CXX SOVERSION ${REPRISE_SOVERSION} VERSION ${REPRISE_SOVERSION}.${REPRISE_ABI}.0
  LINK_DEPENDS ${version_script} EXPORT_NAME reprise LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
target_include_directories(reprise_library INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# The libraries of Debian that libreprise.a leaves to the program.
set(REPRISE_ARCHIVE_NEEDS re2 pcre2-8 utf8proc xxhash png jpeg webp stdc++ m dl pthread)
include(cmake/archive.cmake)

include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Reprise)
install(TARGETS reprise_library EXPORT Reprise
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lib NAMELINK_COMPONENT dev EXCLUDE_FROM_ALL)
install(EXPORT Reprise FILE RepriseConfig.cmake NAMESPACE Reprise:: DESTINATION ${package_folder} COMPONENT dev
        EXCLUDE_FROM_ALL)
write_basic_package_version_file(RepriseConfigVersion.cmake VERSION ${REPRISE_SOVERSION}.${REPRISE_ABI}
                                 COMPATIBILITY SameMajorVersion)
# From its own folder, so that the tree may be moved.
file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
set(pc_prefix "\${pcfiledir}/${up}")
list(TRANSFORM REPRISE_ARCHIVE_NEEDS PREPEND -l OUTPUT_VARIABLE pc_private)
list(JOIN pc_private " " pc_private)
configure_file(cmake/reprise.pc.in reprise.pc @ONLY)
set(dev COMPONENT dev EXCLUDE_FROM_ALL)
install(FILES ${CMAKE_BINARY_DIR}/RepriseConfigVersion.cmake DESTINATION ${package_folder} ${dev})
install(FILES ${CMAKE_BINARY_DIR}/reprise.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig ${dev})
install(FILES include/reprise.h include/reprise.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${dev})
install(FILES src/passes/extension_api.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/reprise RENAME extension.h ${dev})
install(DIRECTORY examples/embed DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples ${dev})

# What tools/make_wheel.py packs: the library and the program again, stripped, with the C++ library in them and the rest
# looked for beside.
if(TARGET reprise AND NOT REPRISE_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  add_library(reprise_wheel_library SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:capi>)
  target_link_libraries(reprise_wheel_library PRIVATE api server)
  target_link_options(reprise_wheel_library PRIVATE LINKER:--version-script=${version_script})
  set_target_properties(reprise_wheel_library PROPERTIES
    OUTPUT_NAME reprise SOVERSION ${REPRISE_SOVERSION} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/wheel/_lib
    INSTALL_RPATH $ORIGIN)
  add_executable(reprise_wheel_program EXCLUDE_FROM_ALL $<TARGET_OBJECTS:reprise> apps/wheel/arc4random.cpp)
  target_link_libraries(reprise_wheel_program PRIVATE apps_common)
  set_target_properties(reprise_wheel_program PROPERTIES
    OUTPUT_NAME reprise RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/wheel/_bin INSTALL_RPATH $ORIGIN/../_lib)
  foreach(target reprise_wheel_library reprise_wheel_program)
    target_link_options(${target} PRIVATE -static-libstdc++ -s LINKER:--gc-sections)
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX BUILD_WITH_INSTALL_RPATH ON)
  endforeach()
  set(in_all)
  if(REPRISE_TESTS)
    set(in_all ALL)
  endif()
  add_custom_target(wheel ${in_all} DEPENDS reprise_wheel_library reprise_wheel_program)
endif()
