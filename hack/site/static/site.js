// Copyright The nsinit Authors.
// SPDX-License-Identifier: Apache-2.0

// The search, the colours, the navigation on small screens, and copying code. Without it, the site remains readable.
(function () {
  "use strict";
  const root = document.documentElement;
  const find = (selector) => document.querySelector(selector);
  const make = (name, attributes, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };

  // Colours: those of the system, or the chosen ones.
  const theme = find("button.theme");
  const themes = ["system", "light", "dark"];
  const showTheme = () => {
    const chosen = root.dataset.theme || "system";
    theme.textContent = { system: "◐", light: "☀", dark: "☾" }[chosen];
    theme.title = "Colours: " + chosen;
    theme.setAttribute("aria-label", theme.title);
  };
  theme.addEventListener("click", () => {
    const next = themes[(themes.indexOf(root.dataset.theme || "system") + 1) % themes.length];
    if (next === "system") delete root.dataset.theme; else root.dataset.theme = next;
    try {
      if (next === "system") localStorage.removeItem("theme"); else localStorage.setItem("theme", next);
    } catch { /* no storage: until the next page */ }
    showTheme();
  });
  showTheme();

  // Navigation on small screens.
  const menu = find("button.menu");
  const openMenu = (open) => {
    menu.setAttribute("aria-expanded", String(open));
    document.body.classList.toggle("navigating", open);
  };
  menu.addEventListener("click", () => openMenu(menu.getAttribute("aria-expanded") !== "true"));
  const current = find(".navigation [aria-current]");
  if (current && current.offsetTop > window.innerHeight / 2) find(".navigation").scrollTop = current.offsetTop - 120;

  // Copy code, without the prompts and the output.
  for (const pre of document.querySelectorAll("article pre")) {
    const button = make("button", { type: "button", class: "copy", "aria-label": "Copy this code" }, "Copy");
    button.addEventListener("click", async () => {
      const lines = pre.textContent.replace(/\n$/, "").split("\n");
      const prompted = lines.filter((line) => line.startsWith("$ "));
      const code = prompted.length > 0 ? prompted.map((line) => line.slice(2)) : lines;
      try {
        await navigator.clipboard.writeText(code.join("\n") + "\n");
        button.textContent = "Copied";
      } catch {
        button.textContent = "Select it, and copy";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    const box = make("div", { class: "code" });
    pre.replaceWith(box);
    box.append(pre, button);
  }

  // The keyboard scrolls what is wider than the page.
  const reach = () => {
    for (const element of document.querySelectorAll("article pre, article table")) {
      if (element.scrollWidth > element.clientWidth) element.tabIndex = 0; else element.removeAttribute("tabindex");
    }
  };
  addEventListener("resize", reach);
  reach();

  // Mark what is read in the contents.
  const contents = new Map();
  for (const link of document.querySelectorAll(".contents a")) contents.set(decodeURIComponent(link.hash.slice(1)), link);
  if (contents.size > 0) {
    const headings = [...document.querySelectorAll("article h2[id], article h3[id]")].filter((heading) => contents.has(heading.id));
    const mark = () => {
      const read = headings.filter((heading) => heading.getBoundingClientRect().top < 120).pop() || headings[0];
      for (const [id, link] of contents) link.classList.toggle("read", Boolean(read) && id === read.id);
    };
    addEventListener("scroll", mark, { passive: true });
    mark();
  }

  // The search.
  const input = find("#site-search"), list = find("#site-results"), status = find("#site-found");
  const home = find("a.brand").href.replace(/[^/]*$/, "");
  let prepared, loading, selected = -1;
  const load = () => {
    if (loading) return;
    loading = make("script", { src: home + "search-index.js" });
    loading.addEventListener("load", () => { prepared = documentation.prepare(searchIndex); show(); });
    loading.addEventListener("error", () => { status.textContent = "The index of the search cannot be read"; });
    document.head.append(loading);
  };
  const close = () => { list.hidden = true; input.setAttribute("aria-expanded", "false"); input.removeAttribute("aria-activedescendant"); selected = -1; };
  const select = (number) => {
    const options = list.querySelectorAll("a");
    if (options.length === 0) return;
    selected = (number + options.length) % options.length;
    options.forEach((option, i) => option.setAttribute("aria-selected", String(i === selected)));
    input.setAttribute("aria-activedescendant", options[selected].id);
    options[selected].scrollIntoView({ block: "nearest" });
  };
  function marked(text, query, length) {
    const pieces = documentation.excerpt(text, query, length);
    return pieces.map((piece, i) => (i % 2 === 1 ? make("mark", {}, piece) : piece));
  }
  function show() {
    const query = input.value.trim();
    if (!prepared || query === "") { close(); status.textContent = ""; return; }
    const found = documentation.search(prepared, query, 12);
    list.replaceChildren(...found.map(({ section }, i) => make("a", { role: "option", id: "site-result-" + i, href: home + section.url, tabindex: "-1", "aria-selected": "false" },
      make("strong", {}, ...marked(section.heading || section.page, query, 200)),
      make("small", {}, section.heading ? section.page : section.group || ""),
      make("span", {}, ...marked(section.text, query, 150)))));
    if (found.length === 0) list.append(make("p", { role: "option", "aria-disabled": "true" }, "Nothing found for “" + query + "”."));
    status.textContent = found.length === 0 ? "Nothing found" : found.length + " results";
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    selected = -1;
    if (found.length > 0) select(0);
  }
  input.addEventListener("focus", load);
  input.addEventListener("input", () => { load(); show(); });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { if (list.hidden) input.blur(); close(); event.preventDefault(); return; }
    if (list.hidden && event.key === "ArrowDown") show();
    else if (event.key === "ArrowDown") select(selected + 1);
    else if (event.key === "ArrowUp") select(selected - 1);
    else if (event.key === "Enter" && selected >= 0) list.querySelectorAll("a")[selected].click();
    else return;
    event.preventDefault();
  });
  list.addEventListener("click", (event) => { if (event.target.closest("a")) { close(); input.blur(); } });
  document.addEventListener("click", (event) => { if (!event.target.closest(".search")) close(); });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, [contenteditable]");
    if ((event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) || (event.key === "k" && (event.ctrlKey || event.metaKey))) {
      event.preventDefault();
      input.focus();
      input.select();
    }
    if (event.key === "Escape") openMenu(false);
  });

  root.classList.add("ready");
})();
