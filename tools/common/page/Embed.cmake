# cmake -DCOMMON=FOLDER -DSOURCE=FOLDER -DPARTS=a,b -DCOMMAND=… -DTEXT=… -DOUT=FILE -P Embed.cmake: writes a page, with its
# style sheet and scripts inlined, as a C++ string literal. COMMON holds the files of all pages, SOURCE the scripts of this
# one, which are inserted in the order of PARTS.
cmake_policy(VERSION 3.25) # without it "@COMMAND@" is the variable's value
set(style "")
foreach(folder ${COMMON} ${SOURCE})
  file(READ ${folder}/style.css text)
  string(APPEND style "${text}\n")
endforeach()
set(script "")
string(REPLACE "," ";" parts "${PARTS}")
list(TRANSFORM parts PREPEND ${SOURCE}/)
foreach(part ${COMMON}/text ${COMMON}/table ${COMMON}/chart ${COMMON}/parts ${parts})
  file(READ ${part}.js text)
  string(APPEND script "${text}\n")
endforeach()
file(READ ${COMMON}/page.html page)
string(REPLACE "@COMMAND@" "${COMMAND}" page "${page}")
string(REPLACE "@TEXT@" "${TEXT}" page "${page}")
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@SCRIPT@" "${script}" page "${page}")
file(WRITE ${OUT} "R\"~~page~~(${page})~~page~~\"\n")
