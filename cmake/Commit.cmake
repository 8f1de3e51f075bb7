# lockstep_commit(<variable> <folder>): the commit of the repository at this folder, with "+" where a file differs
# from it; "unknown" in an archive, or where there is no git.
function(lockstep_commit variable folder)
  execute_process(
    COMMAND git -C "${folder}" --git-dir=.git describe --always --abbrev=12 --dirty=+ "--exclude=*"
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    set(commit unknown)
  endif()
  set(${variable} "${commit}" PARENT_SCOPE)
endfunction()
