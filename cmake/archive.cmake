# libreprise.a: the library for programs that have it inside (Reprise::static). One object of all that libreprise.so is
# made of, in which the functions of include/reprise.h alone are global, so that a program with another version of fmt
# or of a JSON library links as well.
option(REPRISE_STATIC_LIBRARY "Make libreprise.a, an archive for static linking, beside libreprise.so" ON)
set(reason)
if(REPRISE_SANITIZE OR CMAKE_CROSSCOMPILING OR REPRISE_HAS_CUDA)
  set(reason "not with sanitizers, for other machines, or with CUDA")
elseif(NOT fmt_VERSION MATCHES "^9\\.")
  set(reason "fmt ${fmt_VERSION} is not the 9.x that cmake/fmt_of_archive.cpp is written for")
endif()
if(NOT REPRISE_STATIC_LIBRARY OR reason)
  if(REPRISE_STATIC_LIBRARY)
    message(STATUS "no libreprise.a: ${reason}")
  endif()
  return()
endif()

# The archives of this project that a target needs, itself among them.
function(archives_of target result)
  set(found ${${result}})
  get_target_property(kind ${target} TYPE)
  if(NOT kind STREQUAL "STATIC_LIBRARY" OR ${target} IN_LIST found)
    set(${result} ${found} PARENT_SCOPE)
    return()
  endif()
  list(APPEND found ${target})
  get_target_property(needed ${target} LINK_LIBRARIES)
  foreach(name ${needed})
    if(TARGET ${name})
      get_target_property(imported ${name} IMPORTED)
      if(NOT imported)
        archives_of(${name} found)
      endif()
    endif()
  endforeach()
  set(${result} ${found} PARENT_SCOPE)
endfunction()
set(archives)
archives_of(api archives)
archives_of(server archives)

add_library(reprise_fmt OBJECT cmake/fmt_of_archive.cpp)
target_link_libraries(reprise_fmt PRIVATE fmt::fmt)
house_shareable(reprise_fmt)
set(object ${CMAKE_BINARY_DIR}/lib/reprise.o)
list(TRANSFORM archives REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE files)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_custom_command(
  OUTPUT ${object}
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/partial_link.py --header ${CMAKE_SOURCE_DIR}/include/reprise.h
          --ld ${CMAKE_LINKER} --objcopy ${CMAKE_OBJCOPY} --output ${object} $<TARGET_OBJECTS:capi>
          $<TARGET_OBJECTS:reprise_fmt> ${files}
  COMMAND_EXPAND_LISTS VERBATIM
  DEPENDS ${CMAKE_SOURCE_DIR}/tools/partial_link.py ${CMAKE_SOURCE_DIR}/include/reprise.h capi $<TARGET_OBJECTS:capi>
          $<TARGET_OBJECTS:reprise_fmt> ${archives}
  COMMENT "One object of all of libreprise")
set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
add_library(reprise_static STATIC ${object})
# What a program needs besides; names, because the tree may be installed elsewhere.
target_link_libraries(reprise_static INTERFACE ${REPRISE_ARCHIVE_NEEDS})
set_target_properties(reprise_static PROPERTIES OUTPUT_NAME reprise LINKER_LANGUAGE CXX EXPORT_NAME static
                      ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
target_include_directories(reprise_static INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS reprise_static EXPORT Reprise
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev EXCLUDE_FROM_ALL)
