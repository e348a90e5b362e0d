// What the theme leaves undone for readers who do not use a mouse, or cannot see the page, or have a small screen.
"use strict";

// Every part of a page belongs to a landmark.
function nameLandmarks() {
  const sidebar = document.querySelector(".bd-sidebar-primary");
  sidebar?.setAttribute("role", "region");
  sidebar?.setAttribute("aria-label", "Book");
}

// A sign that opens a list has a name.
function nameToggles() {
  for (const summary of document.querySelectorAll("summary")) {
    if (!summary.textContent.trim()) summary.setAttribute("aria-label", "Show the pages below this one");
  }
}

// A signature on several lines is no list of meanings, though Sphinx writes it as one.
function plainSignatures() {
  for (const part of [...document.querySelectorAll("dt.sig dl, dt.sig dd")].reverse()) {
    const box = document.createElement("span");
    box.className = part.tagName === "DD" ? "sig-argument" : "sig-arguments";
    box.append(...part.childNodes);
    part.replaceWith(box);
  }
}

// A corner of a table without text heads nothing.
function emptyCorners() {
  for (const head of document.querySelectorAll("th")) {
    if (head.textContent.trim()) continue;
    const cell = document.createElement("td");
    cell.className = head.className;
    head.replaceWith(cell);
  }
}

// Each cell of a table of words knows its column, so that site.css can stack the cells on a small screen.
function labelCells() {
  for (const table of document.querySelectorAll(".bd-article table")) {
    const names = [...table.querySelectorAll("thead tr > *")].map((head) => head.textContent.trim());
    const wordy = [...table.querySelectorAll("td")].some((cell) => cell.textContent.length > 40);
    if (names.length < 3 || (table.closest(".cell_output") && !wordy)) continue; // numbers stay in their columns
    table.classList.add("many-columns");
    table.setAttribute("role", "table"); // which stacked rows would lose
    for (const row of table.querySelectorAll("tbody tr")) {
      row.setAttribute("role", "row");
      [...row.children].forEach((cell, i) => {
        cell.setAttribute("role", "cell");
        cell.setAttribute("data-column", names[i] ?? "");
      });
    }
  }
}

// A figure opens large. The dialog is the browser's own: Esc closes it, and the focus goes back to where it was.
function enlargeFigures() {
  const dialog = document.createElement("dialog");
  dialog.className = "large-figure";
  dialog.setAttribute("aria-label", "The figure, large");
  dialog.innerHTML = "<form method='dialog'><button>Close</button></form><div tabindex='0'><img></div>";
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close()); // beside the figure
  document.querySelector("main").append(dialog);
  for (const figure of document.querySelectorAll("article img")) {
    const link = document.createElement("a");
    link.href = figure.src;
    link.className = "enlarge";
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const large = dialog.querySelector("img");
      large.src = figure.src;
      large.alt = figure.alt;
      large.style.setProperty("--ratio", figure.naturalWidth / figure.naturalHeight);
      dialog.showModal();
    });
    figure.replaceWith(link);
    link.append(figure);
  }
}

// A shape such as [B, T, D] stays on one line; longer code may break.
function keepShortCode() {
  for (const code of document.querySelectorAll("code.literal")) {
    if (code.textContent.length <= 16) code.style.whiteSpace = "nowrap";
    for (const word of code.children) word.style.whiteSpace = "inherit";
  }
}

// What scrolls sideways can be reached with the keyboard; what does not is no stop on the way.
function reachScrolling() {
  for (const box of document.querySelectorAll("pre, div.math, .cell_output div")) {
    const scrolls = box.scrollWidth > box.clientWidth && getComputedStyle(box).overflowX !== "visible";
    box.classList.toggle("scrolls", scrolls);
    if (scrolls) box.tabIndex = 0;
    else if (box.tabIndex >= 0) box.removeAttribute("tabindex");
  }
}

// From a folder a browser lets no page read another one, which the search does for its excerpts.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

document.addEventListener("DOMContentLoaded", () => {
  nameLandmarks();
  nameToggles();
  plainSignatures();
  emptyCorners();
  labelCells();
  keepShortCode();
  enlargeFigures();
  reachScrolling();
  window.addEventListener("resize", reachScrolling);
});
