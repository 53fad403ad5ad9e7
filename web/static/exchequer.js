// What pages gain with scripts: acts that can't be undone are confirmed, and a button works once.
(() => {
  const dialog = document.getElementById("confirm");
  const confirmed = new WeakSet();

  // "{epsilon}" in a text becomes what the form's field holds now.
  const filled = (text, form) =>
    text.replace(/\{(\w+)\}/g, (whole, name) => form.elements[name]?.value.trim() || whole);

  // What is about to happen may hang on what was typed: the panel beside the form then has the words.
  const ask = (form, source, button) => {
    const words = { ...source.dataset, ...document.getElementById(source.dataset.words)?.dataset };
    dialog.querySelector("#confirm-title").textContent = filled(words.confirm, form);
    dialog.querySelector("#confirm-effect").textContent = filled(words.effect || "", form);
    dialog.querySelector("#confirm-yes").textContent = words.yes || "Yes";
    dialog.returnValue = "no"; // Escape leaves it so
    dialog.addEventListener("close", () => {
      if (dialog.returnValue !== "yes") return;
      confirmed.add(form);
      // Without scripts the button leads to a page that confirms; that was done here.
      if (button?.dataset.action) button.formAction = button.dataset.action;
      form.requestSubmit(button);
    }, { once: true });
    dialog.showModal();
  };

  document.addEventListener("click", async ({ target }) => {
    const button = target.closest("[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(button.closest("li").querySelector("p").textContent);
    button.firstChild.textContent = "Copied";
  });

  document.addEventListener("submit", (event) => {
    const form = event.target;
    const button = event.submitter || undefined;
    if (form.method === "dialog") return;
    const source = button?.dataset.confirm ? button : form.dataset.confirm ? form : null;
    if (source && !confirmed.delete(form)) {
      event.preventDefault();
      ask(form, source, button);
      return;
    }
    // The server makes one job of two clicks as well; this only spares the second request.
    if (button && "once" in button.dataset) setTimeout(() => { button.disabled = true; }, 0);
  });

  // Another mechanism has other fields: the form comes back with them, and priced.
  document.addEventListener("change", (event) => {
    if (!("reload" in event.target.dataset)) return;
    event.target.form.requestSubmit(event.target.form.querySelector("button[value=price]"));
  });

  // A price is older than what was typed until the next one is there; offline, none comes.
  const age = (words) => document.querySelector("#price h2")?.setAttribute("data-stale", words);
  const unpriced = () => age("not priced: no connection");
  window.addEventListener("offline", unpriced);
  document.addEventListener("htmx:error", unpriced);

  document.addEventListener("input", ({ target }) => {
    const shown = document.getElementById(target.dataset.shown);
    if (shown) shown.textContent = `${target.value} %`; // of a slider
    if (target.closest("#ask")) age("being priced again");
  });

  // A page that comes back from the browser's cache has its buttons again.
  window.addEventListener("pageshow", () => {
    document.querySelectorAll("[data-once]").forEach((button) => {
      if (!button.hasAttribute("data-off")) button.disabled = false;
    });
  });
})();
