# libreprise.a: the rooms up to `api` as one archive, of the same objects, for programs of others (examples/embed).
# find_package(reprise) finds it in the build tree (-DCMAKE_PREFIX_PATH=build/release/reprise) and where
# `cmake --install build/release --component development --prefix DIR` puts it.
set(objects)
foreach(room base settings ranks text checkpoint hub device ops graph kv nn passes backends compile weights models
        engine sched see api cpu_kernels_baseline cpu_kernels_avx2 cpu_kernels_avx512 cpu_kernels_dotprod)
  if(TARGET ${room})
    list(APPEND objects $<TARGET_OBJECTS:${room}>)
  endif()
endforeach()
set(library_prefix ${CMAKE_BINARY_DIR}/reprise)
add_library(libreprise STATIC ${objects})
set_target_properties(libreprise PROPERTIES OUTPUT_NAME reprise LINKER_LANGUAGE CXX
                      ARCHIVE_OUTPUT_DIRECTORY ${library_prefix}/lib)
configure_file(src/api/reprise.h ${library_prefix}/include/reprise/reprise.h COPYONLY)
configure_file(cmake/reprise-config.cmake.in ${library_prefix}/lib/cmake/reprise/reprise-config.cmake @ONLY)

set(development COMPONENT development EXCLUDE_FROM_ALL)
install(TARGETS libreprise ARCHIVE DESTINATION lib ${development})
install(FILES src/api/reprise.h DESTINATION include/reprise ${development})
install(FILES ${library_prefix}/lib/cmake/reprise/reprise-config.cmake DESTINATION lib/cmake/reprise ${development})
install(FILES examples/embed/embed.cpp examples/embed/CMakeLists.txt
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples/embed ${development})
