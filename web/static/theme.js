// Light or dark as the system asks; before the first paint, so that nothing flashes.
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const apply = () => document.documentElement.setAttribute("data-bs-theme", dark.matches ? "dark" : "light");
  apply();
  dark.addEventListener("change", apply);
  document.documentElement.classList.add("js");
})();
