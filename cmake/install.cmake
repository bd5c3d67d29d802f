# `cmake --install build/release --prefix DIR`, and CPack's tarball (./dev package): the binary, the simulator of Ascend
# beside it, the header for extensions, the pages and the completions of shells.
include(GNUInstallDirs)

if(TARGET reprise)
  install(TARGETS reprise RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # The binary looks for it in lib/ascend-sim beside bin, whatever lib is called elsewhere.
  install(DIRECTORY ${CMAKE_BINARY_DIR}/lib/ascend-sim DESTINATION lib USE_SOURCE_PERMISSIONS)
  if(TARGET reprise_mpi)
    install(TARGETS reprise_mpi LIBRARY DESTINATION lib)
  endif()
  install(FILES src/passes/extension_api.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/reprise/passes)
  install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN *.md PATTERN *.json PATTERN *.svg)
  install(FILES examples/extension/slice_mul.cpp DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
  foreach(shell_file bash:bash-completion/completions/reprise zsh:zsh/site-functions/_reprise
                     fish:fish/vendor_completions.d/reprise.fish)
    string(REPLACE ":" ";" parts ${shell_file})
    list(GET parts 0 shell)
    list(GET parts 1 path)
    get_filename_component(folder ${path} DIRECTORY)
    get_filename_component(name ${path} NAME)
    install(CODE "
      file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/completion/${shell})
      execute_process(COMMAND ${CMAKE_BINARY_DIR}/bin/reprise completion ${shell}
                      OUTPUT_FILE ${CMAKE_BINARY_DIR}/completion/${shell}/${name} COMMAND_ERROR_IS_FATAL ANY)")
    install(FILES ${CMAKE_BINARY_DIR}/completion/${shell}/${name} DESTINATION ${CMAKE_INSTALL_DATADIR}/${folder})
  endforeach()
endif()

set(CPACK_PACKAGE_NAME reprise)
set(CPACK_PACKAGE_VENDOR Reprise)
set(CPACK_PACKAGE_FILE_NAME reprise-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)
