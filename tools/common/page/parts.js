// Parts of every page: sections, rows of figures, the theme.

function section(id, title, subtitle, ...content) {
  return el("section", { id, "aria-label": title }, el("h2", {}, title, subtitle ? el("small", {}, subtitle) : null), content);
}
const figure = (label, value, detail) => [label, value, detail || ""];
function figures(rows) {
  return el("dl", { class: "figures" }, rows.filter(Boolean).map(([label, value, detail]) =>
    el("div", {}, el("dt", {}, label), el("dd", {}, value), el("dd", {}, detail))));
}

function themes() {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)"), button = document.getElementById("theme");
  let chosen = null; // no choice: the system's theme
  const apply = () => {
    root.dataset.theme = chosen || (dark.matches ? "dark" : "light");
    button.textContent = root.dataset.theme === "dark" ? "light" : "dark";
    button.setAttribute("aria-label", `switch to ${button.textContent} colours`);
    redraw();
  };
  button.onclick = () => { chosen = root.dataset.theme === "dark" ? "light" : "dark"; apply(); };
  dark.addEventListener("change", apply);
  apply();
}

// The title, the sections and the links to all but the first of them.
function showPage(title, name, made, sections) {
  document.title = title;
  document.getElementById("model").textContent = shorten(name, 80);
  document.getElementById("model").title = shorten(name, 400);
  document.getElementById("made").textContent = made;
  document.getElementById("main").append(...sections.filter(Boolean));
  document.getElementById("nav").append(...[...document.querySelectorAll("section[id]")].slice(1).map(part =>
    el("a", { href: `#${part.id}` }, part.getAttribute("aria-label"))));
  themes();
}
