# `cmake --install build/release --prefix DIR`, and CPack's tarball (./dev package): the binary, the simulator of Ascend
# beside it, the header for extensions, the pages, manual pages and the completions of shells. debian/rules installs the
# components program, sim, lib and dev.
include(GNUInstallDirs)

if(TARGET reprise)
  set(program COMPONENT program)
  install(TARGETS reprise RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} ${program})
  # The binary looks for it in lib/ascend-sim beside bin, whatever lib is called elsewhere.
  install(DIRECTORY ${CMAKE_BINARY_DIR}/lib/ascend-sim DESTINATION lib USE_SOURCE_PERMISSIONS COMPONENT sim)
  if(TARGET reprise_mpi)
    install(TARGETS reprise_mpi LIBRARY DESTINATION lib COMPONENT mpi)
  endif()
  install(FILES src/passes/extension_api.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/reprise/passes COMPONENT pages)
  install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT pages)
  install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT pages
          FILES_MATCHING PATTERN *.md PATTERN *.json PATTERN *.svg)
  install(FILES examples/extension/slice_mul.cpp DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT pages)
  install(FILES examples/nginx.conf examples/haproxy.cfg DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples ${program})
  install(DIRECTORY examples/systemd DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples ${program})
  install(DIRECTORY share/reprise DESTINATION ${CMAKE_INSTALL_DATADIR} ${program})
  # What the program makes of itself.
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(made ${CMAKE_BINARY_DIR}/package-files)
  install(CODE "
    execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/package_files.py
                    ${CMAKE_BINARY_DIR}/bin/reprise ${made} COMMAND_ERROR_IS_FATAL ANY)" ${program})
  install(DIRECTORY ${made}/share/ DESTINATION ${CMAKE_INSTALL_DATADIR} ${program})
  install(DIRECTORY ${made}/etc/reprise DESTINATION ${CMAKE_INSTALL_SYSCONFDIR} ${program})
endif()

set(CPACK_PACKAGE_NAME reprise)
set(CPACK_PACKAGE_VENDOR Reprise)
set(CPACK_PACKAGE_FILE_NAME reprise-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)
