// Copyright The nsinit Authors.
// SPDX-License-Identifier: Apache-2.0

// Runs before the page is drawn, so that it does not flash in the other colours.
(function () {
  "use strict";
  document.documentElement.classList.add("script");
  try {
    const chosen = localStorage.getItem("theme");
    if (chosen) document.documentElement.dataset.theme = chosen;
  } catch { /* no storage: the colours of the system */ }
})();
