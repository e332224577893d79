"""Settings of the documentation site: Sphinx and MyST read the Markdown pages where they are in the repository."""
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
os.environ["PYTHONPATH"] = str(ROOT / "python")        # of the notebooks' kernels

project = "tcc"
html_title = "tcc: a training compiler"
extensions = ["myst_nb", "sphinx_copybutton", "repository_pages"]

root_doc = "README"
include_patterns = ["README.md", "DEPENDENCIES.md", "docs/**", "examples/*/README.md"]
exclude_patterns = ["build*", ".*", "dist", "demo-out"]

myst_heading_anchors = 4                               # anchors as GitHub makes them
myst_enable_extensions = []                            # a page is plain Markdown, for every other reader of it
suppress_warnings = ["misc.highlighting_failure"]      # code that leaves lines out ("…"), and MLIR
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
pygments_style = "tango"
pygments_dark_style = "monokai"
