# cmake -DSOURCE=FOLDER -DOUT=FILE -P Embed.cmake: the page of the report, its style and script written into it, as a C++
# string literal.
file(READ ${SOURCE}/style.css style)
set(script "")
foreach(part data table chart memory frontier sections page)
  file(READ ${SOURCE}/${part}.js text)
  string(APPEND script "${text}\n")
endforeach()
file(READ ${SOURCE}/page.html page)
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@SCRIPT@" "${script}" page "${page}")
file(WRITE ${OUT} "R\"~~page~~(${page})~~page~~\"\n")
